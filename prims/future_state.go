package prims

import (
	"errors"
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/race"
)

// IsSet reports whether the Future is set, and its result.
func (f *Future) IsSet() (shmsync.Errno, bool) {
	f.opening.use()
	s, v, _ := f.read()
	f.opening.use() // after a Close, the words may be those of another object
	if !s.set() {
		return 0, false // v may have the ID of a producer that died, not a result
	}
	return v.errno(), true
}

// read returns the state, and the result of the present round if the round is over. It changes nothing. If a peer has
// overwritten the words, so that the state and the result contradict each other, the third result is false, and the
// state is that of a round that is not over.
func (f *Future) read() (futureState, futureResult, bool) {
	for {
		// The loop repeats only if another call has changed the Future. So the loop is lock-free.
		s := f.load()
		if !s.over() {
			return s, 0, true
		}
		v := futureResult(f.slot(s.round()).Load())
		switch {
		case v.of(s.round()) && v.abandoned() == s.abandoned():
			race.Acquire(f.key)
			return s, v, true
		case f.load() == s:
			return s &^ 1, 0, false
		}
	}
}

// errUnset means that no process has changed the word to say that the Future is set. The result may be stored already:
// Future.now then finds it.
var errUnset = errors.New("not set")

// The method result returns the result of a Future that is set. Otherwise the error is errUnset, or that of a
// closed handle.
func (f *Future) result() (shmsync.Errno, error) {
	if err := f.opening.error("future.wait"); err != nil {
		return 0, err
	}
	s, v, _ := f.read()
	if err := f.opening.error("future.wait"); err != nil {
		return 0, err // after a Close, the words may be those of another object
	}
	if !s.set() {
		return 0, errUnset
	}
	return v.errno(), nil
}

// FutureState is the result of State.
type FutureState struct {
	Set      bool              // there is a result
	Errno    shmsync.Errno     // the result: 0, or an error
	Producer *shmsync.Identity // the process that has claimed the Future, or nil
	Waiting  bool              // the Future is not set, and a call has begun to wait; that call may have given up since
	Err      error             // ErrOwnerDead if the producer died before it set the Future; ErrCorrupt; otherwise nil
}

// State reads f without changing it. The answer may be out of date when it returns.
func (f *Future) State() FutureState {
	for {
		// The loop repeats only if another call has changed the Future. So the loop is lock-free.
		f.opening.use()
		s, v, ok := f.read()
		lost := s.claimed() && !f.a.Current(s.producer())
		if lost { // the producer is not current, so it cannot decide the round any more
			r := futureResult(f.slot(s.round()).Load())
			if f.load() != s {
				continue // r may be the result of a later round
			}
			lost = !r.of(s.round()) || r.abandoned()
		}
		f.opening.use()
		st := FutureState{Set: s.set(), Errno: v.errno(), Waiting: s.announced()}
		if n := s.producer(); n != 0 {
			st.Producer = f.a.Who(n)
		}
		switch {
		case !ok:
			st.Err = shmsync.ErrCorrupt
		case s.abandoned():
			st.Errno, st.Err = 0, shmsync.ErrOwnerDead
		case lost:
			st.Err = shmsync.ErrOwnerDead
		}
		return st
	}
}

// String renders the state on one line.
func (f *Future) String() string {
	f.opening.use()
	_, text := f.text()
	return fmt.Sprintf("future %s: %s", objectName(f.object), text)
}

// text returns the state, and a description of the state with the result of its round.
func (f *Future) text() (futureState, string) {
	switch s, v, ok := f.read(); {
	case !ok:
		return s, "overwritten"
	case s.over():
		return s, v.String()
	default:
		return s, s.String()
	}
}
