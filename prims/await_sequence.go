package prims

import (
	"errors"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/race"
)

// watch begins a wait for token for WaitAny and the like.
func (q *sequence) watch(token uint64, notify func()) (watcher, error) {
	if err := q.mon.begin(); err != nil {
		return nil, err
	}
	defer q.mon.finish() // when it runs, the wait node keeps the handle open
	waitNode, err := q.register(nil, token)
	switch {
	case waitNode != nil:
	case err == nil:
		race.Acquire(q.mon.key)
		return ended(nil, notify), nil
	case errors.Is(err, shmsync.ErrCanceled):
		return ended(err, notify), nil
	default:
		return nil, err
	}
	w, err := q.mon.watch(waitNode, notify, func(f outcome) (bool, error) { return true, q.judge(f) }, nil)
	if err != nil {
		return nil, err
	}
	return &sequenceWatch{w, q, token}, nil
}

// sequenceWatch is a watcher on a token in a sequence. The token may be reached before any
// process has ended the wait: the process that counted may be dead, or stopped.
type sequenceWatch struct {
	*waitNodeWatch
	q     *sequence
	token uint64
}

func (w *sequenceWatch) reached() (bool, error) {
	if w.waitNode != nil && !w.waitNode.Resolved() && w.q.reached(w.token) {
		race.Acquire(w.q.mon.key)
		return true, nil
	}
	return w.waitNodeWatch.reached()
}

// At returns the wait for a token as an Awaitable; see Wait. CancelWaiters and Stop end that
// wait, as they end Wait.
func (s *Sequencer) At(token uint64) Awaitable { return sequencerToken{s, token} }

// sequencerToken is a token of a Sequencer as an Awaitable.
type sequencerToken struct {
	s     *Sequencer
	token uint64
}

func (x sequencerToken) reached() (bool, error) {
	if err := x.s.mon.opening.error(x.s.op); err != nil {
		return true, err
	}
	switch q := x.s.sequence; {
	case q.reached(x.token):
		race.Acquire(q.mon.key)
		return true, nil
	case x.s.Stopped():
		return true, q.canceledError()
	}
	return false, nil
}

func (x sequencerToken) watch(notify func()) (watcher, error) {
	return x.s.sequence.watch(x.token, notify)
}

func (e *Event) reached() (bool, error) {
	if err := e.opening.error("event.wait"); err != nil {
		return true, err
	}
	if e.auto != nil {
		return e.auto.tryWait(), nil
	}
	_, set := e.manual.reached(true)
	return set, nil
}

func (e *Event) watch(notify func()) (watcher, error) {
	if e.auto != nil {
		return e.auto.watch(notify)
	}
	return e.manual.watchUntil(true, notify)
}

// ResetAwaitable returns the wait of WaitReset as an Awaitable. e must be bidirectional.
func (e *Event) ResetAwaitable() Awaitable {
	e.needBidirectional("ResetAwaitable")
	return eventReset{e}
}

// eventReset is the reset of an Event as an Awaitable.
type eventReset struct{ e *Event }

func (x eventReset) reached() (bool, error) {
	if err := x.e.opening.error("event.wait"); err != nil {
		return true, err
	}
	_, ok := x.e.manual.reached(false)
	return ok, nil
}

func (x eventReset) watch(notify func()) (watcher, error) {
	return x.e.manual.watchUntil(false, notify)
}
