package prims

import (
	"context"
	"sync"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/park"
)

// Pending is a wait of this process in which no goroutine blocks. It ends once: when its object
// ends the wait, or by Cancel. If the process dies, the wait leaves the queue, as after Cancel.
type Pending struct {
	m     *monitor
	what  abandoned
	op    string
	judge func(outcome) error // returns the error for the outcome of a resolved wait
	then  func(error)         // called on a new goroutine with the error of the wait; may be nil
	done  chan struct{}
	err   error // valid once done is closed

	mu       sync.Mutex
	waitNode *park.WaitNode             // guarded by: mu; nil if the wait has ended or has no node
	source   pendingSource              // guarded by: mu; the wait if it has no wait node, or nil
	watchers map[*pendingWatch]struct{} // guarded by: mu; to be notified when the wait ends
}

// pendingSource is the wait of a Pending that a monitor does not serve. The caller of its methods
// holds the mutex of the Pending.
type pendingSource interface {
	// told is called when the wait may be over.
	told(p *Pending)
	// cancel ends the wait. It reports false if the wait was over already.
	cancel(p *Pending) bool
}

// resolved returns a Pending whose wait is over from the beginning.
func resolved(err error) *Pending {
	p := &Pending{done: make(chan struct{}), err: err}
	close(p.done)
	return p
}

// pend makes a Pending of a wait node that has joined a queue. The caller has released the queue
// lock. judge is called once, when the wait is resolved.
func (m *monitor) pend(op string, s *park.WaitNode, judge func(outcome) error) *Pending {
	return m.pendThen(op, s, judge, nil)
}

// pendThen does what the method pend does, with a function that is called after the wait has ended.
func (m *monitor) pendThen(op string, s *park.WaitNode, judge func(outcome) error, then func(error)) *Pending {
	p := m.newPending(op, s, judge)
	p.then = then
	p.begin()
	return p
}

// newPending does what pend does, but the Pending gets no notifications until the method begin is
// called.
func (m *monitor) newPending(op string, s *park.WaitNode, judge func(outcome) error) *Pending {
	return &Pending{m: m, waitNode: s, what: waitOf(s), op: op, judge: judge, done: make(chan struct{})}
}

func (p *Pending) begin() {
	// The Pending counts as a call that waits, so the periodic checks of this process go on.
	if p.m.begin() != nil {
		err := p.m.refuse(p.waitNode)
		if err == nil {
			err = p.judge(p.m.collect(p.waitNode))
		}
		p.end(err)
		return
	}
	p.waitNode.Watch(p.m.queueLock.queue, p.told)
}

// told is called when the wait is resolved, or when this process leaves the arena.
func (p *Pending) told() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.source != nil:
		p.source.told(p)
		return
	case p.waitNode == nil:
		return
	case p.waitNode.Resolved():
		p.resolved()
		return
	case !p.m.queueLock.queue.Closing():
		return
	case p.waitNode.Abandon():
		p.m.cleanUp(p.what)
		p.end(p.m.fail(p.op, shmsync.ErrClosed, nil, closedHandle))
	default:
		p.resolved()
		return
	}
	p.m.finish()
}

// resolved ends a Pending whose wait was resolved. It also ends the call as which the Pending
// counts.
func (p *Pending) resolved() { // guarded by: mu
	err := p.judge(p.m.collect(p.waitNode))
	p.end(err)
	p.m.finish()
}

func (p *Pending) end(err error) { // guarded by: mu
	p.waitNode, p.source, p.err = nil, nil, err
	close(p.done)
	for w := range p.watchers {
		w.notify()
	}
	p.watchers = nil
	if p.then != nil {
		go p.then(err)
	}
}

// Done returns a channel that is closed when the wait has ended.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Wait waits until the wait of p has ended, and returns the result. That is nil, or an error that
// Is ErrCanceled after Cancel or the object's Stop, or otherwise the error that the blocking form
// of the call returns.
func (p *Pending) Wait() error { return p.WaitContext(context.Background()) }

// WaitContext is Wait that returns ctx.Err() when ctx ends first. The wait of p then goes on;
// Cancel ends it. If the wait of p has ended, its result takes precedence over ctx.
func (p *Pending) WaitContext(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	default:
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Cancel ends the wait if it has not ended, and reports whether it did. If it returns false, the
// wait had ended before the call; for example, this process then holds the lock.
func (p *Pending) Cancel() bool {
	p.mu.Lock()
	switch {
	case p.source != nil:
		defer p.mu.Unlock()
		return p.source.cancel(p)
	case p.waitNode == nil:
		p.mu.Unlock()
		return false
	case !p.waitNode.Abandon():
		p.resolved()
		p.mu.Unlock()
		return false
	}
	p.end(p.m.fail(p.op, shmsync.ErrCanceled, nil, "it was cancelled"))
	p.mu.Unlock()
	p.m.cleanUp(p.what)
	p.m.finish()
	return true
}
