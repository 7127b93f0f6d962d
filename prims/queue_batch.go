package prims

import "context"

// PutBatch puts the items of vs into q in their order. It puts as many as there is room for, and then waits for more
// room. It returns the number of items that it has put into q. This number is less than len(vs) only if there is an
// error. The errors are those of Put. Items of other processes may come between the items of a batch.
func (q *Queue[T]) PutBatch(vs []T) (n int, err error) {
	return q.PutBatchContext(context.Background(), vs)
}

// PutBatchContext is like PutBatch, but returns ctx.Err() if ctx ends while it waits for room.
func (q *Queue[T]) PutBatchContext(ctx context.Context, vs []T) (n int, err error) {
	x := q.core
	for n < len(vs) {
		before := n
		for n < len(vs) && x.open() && q.tryPut(vs[n]) == queuePutDone {
			n++
		}
		if n > before {
			x.done(&x.items, n-before)
			continue
		}
		if err := q.putSlow(ctx, vs[n]); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// GetBatch waits until q has an item. Then it moves items, in their order, to the slice, until the slice is full or q
// is empty. It returns the number of items moved, which is 0 only if the slice is empty or there is an error. The
// errors are those of Get.
func (q *Queue[T]) GetBatch(into []T) (n int, err error) {
	return q.GetBatchContext(context.Background(), into)
}

// GetBatchContext is like GetBatch, but returns ctx.Err() if ctx ends while it waits for an item.
func (q *Queue[T]) GetBatchContext(ctx context.Context, into []T) (n int, err error) {
	if len(into) == 0 {
		return 0, nil
	}
	if n = q.getMore(into); n > 0 {
		return n, nil
	}
	if into[0], err = q.getSlow(ctx); err != nil {
		return 0, err
	}
	return 1 + q.getMore(into[1:]), nil
}

// getMore moves items to the slice until the slice is full or q is empty. It does not wait.
func (q *Queue[T]) getMore(into []T) (n int) {
	x := q.core
	for n < len(into) && !x.shut.Load() {
		t, ok := x.take(queueTaken)
		if !ok || t.s == nil {
			break
		}
		into[n] = *queueItem[T](t.s)
		if !x.drop(t) {
			break
		}
		n++
	}
	if n > 0 {
		x.done(&x.room, n)
	}
	return n
}
