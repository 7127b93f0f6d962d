package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("waitable.state.copied")
	_ = crashpoint.Register("waitable.update.copied")
)

// stateTries is how often a call copies the state at most. If a call has failed often, other processes let it go first.
// So only a peer that overwrites the words can make that many copies fail.
const stateTries = 1_000_000

// State returns a copy of the state. State waits for no other process. All parts of the copy are from one moment.
func (x *Waitable[S, E]) State() S {
	defer x.opening.serve(x.queue).end()
	x.reapIfDue()
	var s S
	if _, ok := x.read(&s); ok {
		return s
	}
	b := takeWakes()
	defer x.wake(b)
	var c recordedChange
	var tries attempts
	defer x.over(&tries)
	if _, err := x.copyState(&c, b, &s, &tries); err != nil {
		panic(err)
	}
	return s
}

// read copies the state to *s, if the last change is complete and no other change is made meanwhile.
func (x *Waitable[S, E]) read(s *S) (seen stateSeen, ok bool) {
	c := x.load()
	if x.completed.Load() != uint64(c) {
		return seen, false
	}
	w := recordedWord(x.words.current.Load())
	p := x.image(w.value())
	if p == nil {
		return seen, false
	}
	*s = copyOf[S](p)
	asm.LoadFence()
	// sync(waitable.state): acquire
	ok = x.load() == c
	race.Acquire(x.key)
	return stateSeen{c.version(), w}, ok
}

// copyState begins the change c, and copies the state that c has found to *s. It returns the word current of that state.
//
//	copyState                          a process that changes the state
//	c = the commit word                writes an image of its own slot that is not valid
//	carries out its record             CAS of the commit word: the image is valid, by the record
//	w = current; *s = the image of w
//	c = the commit word
//	carries out its record
//	is current still w?
//
// No process writes a valid image. So if current, with its tag, is w before and after the copy, the image did not
// change meanwhile. Other changes, such as those of the queue, do not matter.
//
// Each failed copy is counted in t, as an attempt of the call. So if another process changes the state faster than this
// process copies it, the other process soon has to wait for a while; see waitable_yield.go.
func (x *Waitable[S, E]) copyState(c *recordedChange, b *wakes, s *S, t *attempts) (w recordedWord, err error) {
	if err := x.begin(c, b); err != nil {
		return 0, err
	}
	for range stateTries {
		w := recordedWord(x.words.current.Load())
		p := x.image(w.value())
		if p != nil {
			*s = copyOf[S](p)
			crashpoint.Hit("waitable.state.copied")
			asm.LoadFence()
		}
		// sync(waitable.state): acquire
		if err := x.begin(c, b); err != nil {
			return 0, err
		}
		switch {
		case recordedWord(x.words.current.Load()) != w:
		case p == nil:
			return 0, x.corrupt("its state is in the slot record of a slot that has none")
		default:
			race.Acquire(x.key)
			return w, nil
		}
		x.again(t)
	}
	return 0, x.corrupt("its state changes all the time")
}

// put makes *s the state, as a part of the change c.
func (x *Waitable[S, E]) put(c *recordedChange, s *S) {
	race.ReleaseMerge(x.key)
	name := x.spare(c)
	storeAt(x.own.imageIn(x.shape, name), s)
	crashpoint.Hit("waitable.update.copied")
	// sync(waitable.state): release
	c.set(waitableCurrentWord, 0, &x.words.current, name)
}

// String renders the state on one line.
func (x *Waitable[S, E]) String() string {
	s := fmt.Sprintf("waitable %s: %+v", objectName(x.object), x.State())
	if err := x.Err(); err != nil {
		s += ", " + err.Error()
	}
	return s
}
