package prims

import (
	"context"
	"sync"
)

// Pending is a wait of this process that blocks no goroutine. It ends once: the object ends it, or Cancel does. If
// the process dies, the wait is removed from the queue of the object, as after Cancel.
type Pending struct {
	op   string
	then func(error) // called on a new goroutine with the error of the wait; may be nil
	done chan struct{}
	err  error // valid once done is closed

	mu       sync.Mutex
	source   pendingSource              // guarded by: mu; the wait, or nil if it has ended
	watchers map[*pendingWatch]struct{} // guarded by: mu; to be notified when the wait ends
}

// pendingSource is the wait of an object to which a Pending belongs. Callers hold the mutex of the Pending.
type pendingSource interface {
	// told ends p if the wait is over.
	told(p *Pending)
	// cancel ends the wait and p. It returns false if the wait was already over.
	cancel(p *Pending) bool
}

// resolved returns a Pending that has already ended with the error err.
func resolved(err error) *Pending {
	p := &Pending{done: make(chan struct{}), err: err}
	close(p.done)
	return p
}

// told is called when the object has ended the wait, or when this process leaves the arena.
func (p *Pending) told() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.source != nil {
		p.source.told(p)
	}
}

func (p *Pending) end(err error) { // guarded by: mu
	p.source, p.err = nil, err
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

// Wait waits until the wait of p has ended, and returns the result of that wait. After Cancel, or after the
// object's Stop, the result is an error that Is ErrCanceled. Otherwise the result is what the blocking form of the
// call would have returned.
func (p *Pending) Wait() error { return p.WaitContext(context.Background()) }

// WaitContext is like Wait, but returns ctx.Err() when ctx ends first. The wait of p then goes on until it ends or
// Cancel is called. If the wait of p has ended, WaitContext returns its result even if ctx has ended too.
func (p *Pending) WaitContext(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	default:
	}
	ctx = orEndless(ctx)
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
	}
	select {
	case <-p.done: // both have ended; the result takes precedence
		return p.err
	default:
		return ctx.Err()
	}
}

// Cancel ends the wait if it has not ended yet, and reports whether it did. If Cancel returns false, the wait had
// already ended. For example, this process may then hold the lock for which p waited.
func (p *Pending) Cancel() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.source != nil && p.source.cancel(p)
}
