package proctest

import (
	"sync"
	"time"
)

// queue is a queue of unlimited length. So the goroutine that reads a pipe and calls put never blocks, and notices
// the end of the pipe.
type queue[T any] struct {
	mu     sync.Mutex
	items  []T
	closed bool
	more   chan struct{} // contains a value while get may find something new
}

func newQueue[T any]() *queue[T] { return &queue[T]{more: make(chan struct{}, 1)} }

// put appends v. It must not be called after close.
func (q *queue[T]) put(v T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = append(q.items, v)
	q.signal()
}

// close records that put will not be called any more.
func (q *queue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	close(q.more)
}

// signal puts a value into q.more, so that get checks the queue again. The caller holds mu.
func (q *queue[T]) signal() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// outcome says how a call of get ended.
type outcome int

const (
	received outcome = iota
	ended            // the queue is closed and empty
	expired
)

// get removes and returns the first item. If there is none, get waits for one until the channel limit delivers a
// value.
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

// poll does what get does, but does not wait. The result ok is true if there is an item, or if the queue is closed.
func (q *queue[T]) poll() (v T, o outcome, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) > 0 {
		v, q.items = q.items[0], q.items[1:]
		if len(q.items) > 0 && !q.closed {
			q.signal() // another goroutine may also wait in get
		}
		return v, received, true
	}
	return v, ended, q.closed
}
