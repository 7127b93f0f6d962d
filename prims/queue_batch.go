package prims

import "context"

// PutBatch puts the items of vs into q in their order, as many at a time as there is
// room for, and waits for the rest. n is how many are in q; it is less than all with
// an error only, which is one of Put. Items of others may come in between where it had to
// wait.
func (q *Queue[T]) PutBatch(vs []T) (n int, err error) {
	return q.PutBatchContext(context.Background(), vs)
}

// PutBatchContext is PutBatch until ctx ends; then the error is ctx.Err().
func (q *Queue[T]) PutBatchContext(ctx context.Context, vs []T) (n int, err error) {
	x := q.core
	for n < len(vs) {
		before := n
		for n < len(vs) && x.open() {
			p, was, i, s := x.reserve()
			if s == nil {
				break
			}
			*queueItem[T](s) = vs[n]
			if !x.publish(p, was, i, s) {
				break
			}
			n++
		}
		if n > before {
			x.tellGetters()
			continue
		}
		if err := q.putSlow(ctx, vs[n]); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// GetBatch takes as many items as there are into into, in their order, and waits until
// there is at least one. n is how many it took; it is 0 with an error only, which is
// one of Get, or when into is empty.
func (q *Queue[T]) GetBatch(into []T) (n int, err error) {
	return q.GetBatchContext(context.Background(), into)
}

// GetBatchContext is GetBatch until ctx ends; then the error is ctx.Err().
func (q *Queue[T]) GetBatchContext(ctx context.Context, into []T) (n int, err error) {
	if len(into) == 0 {
		return 0, nil
	}
	x := q.core
	for n < len(into) && x.unclaimed() {
		_, s := x.take(queueTaken)
		if s == nil {
			break
		}
		into[n] = *queueItem[T](s)
		x.release(s)
		n++
	}
	if n == 0 {
		_, s, err := x.waitItem(ctx, queueGet)
		if err != nil {
			return 0, err
		}
		into[0] = *queueItem[T](s)
		x.release(s)
		n = 1
	}
	if !x.putters.empty() {
		x.serve()
	}
	return n, nil
}
