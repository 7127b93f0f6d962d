package prims

import (
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/park"
)

// eventWatch is a wait for a token that blocks no goroutine. When there may be a token, the function notify is called.
type eventWatch struct {
	*eventWait
	notify func()
	watch  *park.Watch // nil before the first call of the method look
}

// beginWatch begins an eventWatch and counts it in the share of this process. The caller has called x.enter, and calls
// x.leave when the wait has ended.
func (x *autoEvent) beginWatch(notify func()) *eventWatch {
	return &eventWatch{eventWait: x.begin(), notify: notify}
}

// look takes a token if there is one, and reports whether it took one. Otherwise it arranges that notify is called
// when there may be a token. If the handle is being closed, look does neither, and ok is false.
func (w *eventWatch) look() (took, ok bool) {
	if w.watch != nil && !w.watch.Over() {
		if w.x.load().tokens() == 0 {
			return false, true
		}
		w.watch.Leave()
	}
	for {
		// The loop repeats only if another call has changed the word. So the loop is lock-free.
		if w.watch != nil {
			w.slept = true
		}
		s, took := w.take()
		if took {
			return true, true
		}
		if w.x.queue.Closing() {
			return false, false
		}
		if watch := w.x.queue.Watch(s.version(), w.watch, w.notify); watch != nil {
			w.watch = watch
			if s.tokens() > 0 {
				time.AfterFunc(eventYield, w.notify)
			}
			return false, true
		}
	}
}

// stop ends the calls of notify, and then ends the wait by giveUp.
func (w *eventWatch) stop(unless bool) (took bool) {
	if w.watch != nil {
		w.watch.Leave()
	}
	return w.giveUp(unless)
}

// async does what Event.WaitAsync does.
func (x *autoEvent) async() *Pending {
	if x.claim() {
		return resolved(nil)
	}
	if err := x.enter(); err != nil {
		return resolved(err)
	}
	if x.shares().err != nil {
		x.leave()
		return resolved(x.corruptShares())
	}
	p := &Pending{op: x.op, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	w := eventPending{x.beginWatch(p.told)}
	p.source = w
	w.told(p)
	return p
}

// eventPending is the wait of a Pending for a token.
type eventPending struct{ *eventWatch }

func (w eventPending) told(p *Pending) {
	switch took, ok := w.look(); {
	case took:
		p.end(nil)
	case ok:
		return
	case w.stop(true):
		p.end(nil)
	default:
		p.end(w.x.closed())
	}
	w.x.leave()
}

func (w eventPending) cancel(p *Pending) bool {
	defer w.x.leave()
	if w.stop(true) {
		p.end(nil)
		return false
	}
	p.end(w.x.fail(shmsync.ErrCanceled, nil, "it was cancelled"))
	return true
}

// watch begins a wait for WaitAny and similar calls. The wait takes a token only when the caller calls the method
// reached of the watcher.
func (x *autoEvent) watch(notify func()) (watcher, error) {
	if err := x.enter(); err != nil {
		return nil, err
	}
	if x.shares().err != nil {
		x.leave()
		return nil, x.corruptShares()
	}
	w := &eventWatcher{eventWatch: x.beginWatch(notify)}
	notify() // makes the caller call reached
	return w, nil
}

// eventWatcher is a watcher of an auto-reset Event.
type eventWatcher struct {
	*eventWatch
	done bool
	err  error
}

func (w *eventWatcher) reached() (bool, error) {
	if w.done {
		return true, w.err
	}
	switch took, ok := w.look(); {
	case took:
		w.done = true
	case ok:
		return false, nil
	default:
		if w.done = true; !w.stop(true) {
			w.err = w.x.closed()
		}
	}
	w.x.leave()
	return true, w.err
}

// leave ends the wait without taking a token.
func (w *eventWatcher) leave() {
	if !w.done {
		w.stop(false)
		w.x.leave()
	}
}
