package prims

import "context"

// PutBatch puts the items of vs into q in their order, as many at a time as there is room for,
// and waits for more room. n is how many it has put into q. It is less than len(vs) only with an
// error, which is one of Put. Items of other processes may come between two parts of a batch.
func (q *Queue[T]) PutBatch(vs []T) (n int, err error) {
	return q.PutBatchContext(context.Background(), vs)
}

// PutBatchContext is PutBatch until ctx ends; then the error is ctx.Err().
func (q *Queue[T]) PutBatchContext(ctx context.Context, vs []T) (n int, err error) {
	x := q.core
	for n < len(vs) {
		if err := x.mon.enter(ctx); err != nil {
			return n, err
		}
		before := n
		for ; n < len(vs); n++ {
			i, s := x.room()
			if s == nil {
				break
			}
			*queueItem[T](s) = vs[n]
			x.add(i, s)
		}
		if n > before {
			x.leave(&x.getters)
			continue
		}
		if err := q.putSlow(ctx, vs[n]); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// GetBatch moves as many items as there are into the slice into, in their order, and waits until
// there is at least one. n is how many it took. It is 0 only if into is empty, or with an error,
// which is one of Get.
func (q *Queue[T]) GetBatch(into []T) (n int, err error) {
	return q.GetBatchContext(context.Background(), into)
}

// GetBatchContext is GetBatch until ctx ends; then the error is ctx.Err().
func (q *Queue[T]) GetBatchContext(ctx context.Context, into []T) (n int, err error) {
	if len(into) == 0 {
		return 0, nil
	}
	x := q.core
	if err := x.mon.enter(ctx); err != nil {
		return 0, err
	}
	i, s := x.ready()
	inQueue := s != nil
	if !inQueue {
		if err := x.begin(); err != nil {
			return 0, err
		}
		defer x.finish()
		if i, s, err = x.waitItem(ctx, queueGet); err != nil {
			return 0, err
		}
	}
	for s != nil {
		into[n] = *queueItem[T](s)
		x.drop(i, s, inQueue)
		if n++; n == len(into) {
			break
		}
		i, s = x.ready()
		inQueue = true
	}
	x.leave(&x.putters)
	return n, nil
}
