package prims

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/park"
)

// pendingChange is the wait of a Pending that ends when the sequence of an eventcount changes.
type pendingChange struct {
	e     *eventcount
	seq   uint32
	judge func() error // called when the sequence has changed; returns the result
	watch *park.Watch  // nil before the wait has begun
}

// pend makes a Pending that ends when the sequence is no longer seq. The function judge is then called once, and
// returns the result. If the parameter named then is not nil, it is a function that is called after the wait has
// ended.
func (e *eventcount) pend(seq uint32, judge func() error, then func(error)) *Pending {
	p := &Pending{op: e.op, then: then, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := e.enter(); err != nil {
		p.end(err)
		return p
	}
	c := &pendingChange{e: e, seq: seq, judge: judge}
	p.source = c
	c.told(p)
	return p
}

// told is called at each wake. If the sequence has changed, or the handle is being closed, told ends the Pending and
// calls eventcount.leave: Close of the handle has waited for the Pending until then.
func (c *pendingChange) told(p *Pending) {
	if c.watch != nil && !c.watch.Over() {
		return // this wake was for an earlier watch
	}
	for {
		// The loop repeats only if another call has changed the word. So the loop is lock-free.
		if c.watch = c.e.watch(c.seq, c.watch, p.told); c.watch != nil {
			return
		}
		if c.e.load().sequence() != c.seq {
			p.end(c.judge())
			break
		}
		if c.e.queue.Closing() {
			p.end(c.e.closed())
			break
		}
	}
	c.e.leave()
}

// cancel ends the wait. If the sequence has changed already, the wait is over, and cancel returns false.
func (c *pendingChange) cancel(p *Pending) bool {
	defer c.e.leave()
	if c.watch != nil {
		c.watch.Leave()
	}
	if c.e.look(); c.e.load().sequence() != c.seq {
		p.end(c.judge())
		return false
	}
	p.end(c.e.fail(shmsync.ErrCanceled, nil, "it was cancelled"))
	return true
}

// changeWatch is a watcher that waits for a change of the sequence of an eventcount.
type changeWatch struct {
	e      *eventcount
	seq    uint32
	judge  func() error
	notify func()
	watch  *park.Watch
	done   bool
	err    error
}

// watchChange begins a wait for a change of the sequence, for WaitAny and similar calls.
func (e *eventcount) watchChange(seq uint32, judge func() error, notify func()) (watcher, error) {
	if err := e.enter(); err != nil {
		return nil, err
	}
	w := &changeWatch{e: e, seq: seq, judge: judge, notify: notify}
	if w.watch = e.watch(seq, nil, notify); w.watch == nil {
		notify()
	}
	return w, nil
}

// reached implements watcher. Close of the handle waits until reached has found the result of the wait, or until the
// caller calls the method leave. It does not wait for the other objects that the caller waits for.
func (w *changeWatch) reached() (bool, error) {
	if w.done {
		return true, w.err
	}
	for !w.done {
		// The loop repeats only if another call has changed the word, or if this iteration has called e.watch. So
		// the loop is lock-free.
		w.e.look()
		switch {
		case w.e.load().sequence() != w.seq:
			w.done, w.err = true, w.judge()
		case w.e.queue.Closing():
			w.done, w.err = true, w.e.closed()
		case w.watch != nil && !w.watch.Over():
			return false, nil
		default: // the wake came without a change of the sequence, so the wait goes on
			w.watch = w.e.watch(w.seq, w.watch, w.notify)
		}
	}
	w.end()
	return true, w.err
}

func (w *changeWatch) end() {
	if w.watch != nil {
		w.watch.Leave()
	}
	w.e.leave()
}

func (w *changeWatch) leave() {
	if !w.done {
		w.end()
	}
}
