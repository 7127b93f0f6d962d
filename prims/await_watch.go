package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var _ = crashpoint.Register("await.futex.judged")

// endedWait is a watcher for a wait that was over already when it began.
type endedWait struct{ err error }

func ended(err error, notify func()) endedWait {
	notify()
	return endedWait{err}
}

func (w endedWait) reached() (bool, error) { return true, w.err }
func (w endedWait) leave()                 {}

// pendingWatch is a watcher on a Pending.
type pendingWatch struct {
	p      *Pending
	notify func()
}

func (p *Pending) reached() (bool, error) {
	select {
	case <-p.done:
		return true, p.err
	default:
		return false, nil
	}
}

func (p *Pending) watch(notify func()) (watcher, error) {
	w := &pendingWatch{p, notify}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.source == nil {
		notify()
		return w, nil
	}
	if p.watchers == nil {
		p.watchers = map[*pendingWatch]struct{}{}
	}
	p.watchers[w] = struct{}{}
	return w, nil
}

func (w *pendingWatch) reached() (bool, error) { return w.p.reached() }

func (w *pendingWatch) leave() {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	delete(w.p.watchers, w)
}

// At returns an Awaitable that waits as Wait(token) does.
func (f *Futex) At(token uint64) Awaitable {
	if token > maxToken {
		panic(fmt.Sprintf("shmsync: At of futex %s for token %d: no counter gets there", objectName(f.object), token))
	}
	return futexToken{f, token}
}

// futexToken is an Awaitable that waits until a Futex reaches a token.
type futexToken struct {
	f     *Futex
	token uint64
}

func (x futexToken) reached() (bool, error) {
	if err := x.f.opening.error("futex.wait"); err != nil {
		return true, err
	}
	return x.judge(futexState(x.f.state.Load()))
}

// judge reports whether a wait is over if s is the value of the word of the Futex, and with which error.
func (x futexToken) judge(s futexState) (bool, error) {
	switch {
	case s.reached(x.token):
		race.Acquire(x.f.key)
		return true, nil
	case s.stopped():
		return true, x.f.fail("futex.wait", shmsync.ErrCanceled, "it was stopped")
	case x.f.queue.Closing():
		return true, x.f.closed()
	}
	return false, nil
}

// futexWatch is the watcher of a futexToken. Each Post ends the watch w and calls notify. If the counter has not
// reached the token by this Post, the wait goes on with another watch.
type futexWatch struct {
	futexToken
	notify func()
	w      *park.Watch // nil if the token was reached before the wait began
	done   bool
	err    error
}

func (x futexToken) watch(notify func()) (watcher, error) {
	if !x.f.queue.Enter() {
		return nil, x.f.closed()
	}
	w := &futexWatch{futexToken: x, notify: notify}
	if !w.listen() {
		notify()
	}
	return w, nil
}

// listen arranges that the next Post calls notify. If the wait is over already, listen returns false and arranges
// nothing.
func (w *futexWatch) listen() bool {
	f := w.f
	for {
		// The loop repeats if another call has changed the word, or if the handle is being closed. A close ends the
		// loop in the next iteration. So the loop is lock-free.
		//
		// The wait must sleep on s, the value that judge has seen. If the loop loaded the word again for the sleep, a
		// Post might have reached the token since judge, and another waiter might have announced itself. The wait would
		// then sleep on the new value, until the next Post.
		s := futexState(f.state.Load())
		if done, _ := w.judge(s); done {
			return false
		}
		crashpoint.Hit("await.futex.judged")
		if !s.announced() {
			if !f.state.CompareAndSwap(uint64(s), uint64(s|futexAnnounced)) {
				continue
			}
			s |= futexAnnounced
		}
		if next := f.queue.Watch(uint32(s), w.w, w.notify); next != nil {
			w.w = next
			return true
		}
	}
}

// reached implements watcher. Until the result of the wait is known, the watcher counts as a call of the Futex, and a
// Close waits for this call. When the result is known, reached ends the call, so that a Close does not wait until the
// other elements of the list have come, too.
func (w *futexWatch) reached() (bool, error) {
	for !w.done {
		// The loop repeats only if another call has posted, or once after a call of listen. So the loop is lock-free.
		switch w.done, w.err = w.futexToken.reached(); {
		case w.done:
			w.end()
		case w.w != nil && !w.w.Over():
			return false, nil
		default:
			w.listen()
		}
	}
	return true, w.err
}

func (w *futexWatch) end() {
	if w.w != nil {
		w.w.Leave()
	}
	w.f.queue.Exit()
}

func (w *futexWatch) leave() {
	if !w.done {
		w.end()
	}
}
