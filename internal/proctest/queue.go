package proctest

import (
	"sync"
	"time"
)

// queue is an unbounded queue, so that the reader of a pipe can always continue reading and notice
// the end of the pipe.
type queue[T any] struct {
	mu     sync.Mutex
	items  []T
	closed bool
	more   chan struct{} // holds a token while get may find something new
}

func newQueue[T any]() *queue[T] { return &queue[T]{more: make(chan struct{}, 1)} }

// put appends v. It must not follow close.
func (q *queue[T]) put(v T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = append(q.items, v)
	q.signal()
}

// close says that nothing will be put any more.
func (q *queue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	close(q.more)
}

// signal leaves a token. The caller holds mu.
func (q *queue[T]) signal() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// outcome is the result of a call of get.
type outcome int

const (
	received outcome = iota
	ended            // the queue is closed and empty
	expired
)

// get returns the first item. It waits for one until limit fires.
func (q *queue[T]) get(limit <-chan time.Time) (v T, o outcome) {
	for {
		if v, o, ok := q.poll(); ok {
			return v, o
		}
		select {
		case <-q.more:
		case <-limit:
			return v, expired
		}
	}
}

// poll is get, but does not wait. ok says whether there is an outcome.
func (q *queue[T]) poll() (v T, o outcome, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) > 0 {
		v, q.items = q.items[0], q.items[1:]
		if len(q.items) > 0 && !q.closed {
			q.signal() // for another reader
		}
		return v, received, true
	}
	return v, ended, q.closed
}
