package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

var _ = crashpoint.Register("waitable.update.copied")

// The state has two copies, and the lowest bit of the field current says which copy is valid. A process that
// changes the state first stores the number of the change in the field copying, then writes the other copy, and
// then increments current:
//
//	changes                       State
//	copying = current+1           c = current
//	write copy current+1          read copy c
//	current = current+1           copying is c or c+1: it was valid all the time
//
// So a read fails only if other processes made a whole change during the read and then began the next one, which
// overwrites the copy that is read.

// stateTries is how often State tries to read before it takes the queue lock. Only if a peer overwrites the words
// do that many tries fail.
const stateTries = 10_000

// State returns a copy of the state. State waits for no other process. All parts of the copy are from one moment.
func (x *Waitable[S, E]) State() S {
	x.mon.opening.use()
	// Enter keeps the arena mapped during the call.
	q := x.mon.queueLock.queue
	if !q.Enter() {
		panic(x.mon.closed())
	}
	defer q.Exit()
	for i := range stateTries {
		if s, ok := x.read(); ok {
			race.Acquire(x.mon.key)
			return s
		}
		if i%100 == 99 {
			shmsync.Yield()
		}
	}
	if err := x.mon.enter(nil); err != nil {
		panic(err)
	}
	defer x.mon.leave(nil)
	return x.state()
}

// read reads the state without the queue lock. ok is false if the copy may have been overwritten
// while it was read.
func (x *Waitable[S, E]) read() (s S, ok bool) {
	// sync(waitable.state): acquire
	c := x.words.current.Load()
	s = *x.copies[c&1]
	asm.LoadFence()
	return s, x.words.copying.Load()-c <= 1
}

// state returns the valid copy of the state. The caller holds the queue lock.
func (x *Waitable[S, E]) state() S { return *x.copies[x.words.current.Load()&1] }

// change adds to the change c that the state becomes *s.
func (x *Waitable[S, E]) change(c *change, s *S) {
	next := x.words.current.Load() + 1
	putBetween(&x.words.copying, next)
	*x.copies[next&1] = *s
	crashpoint.Hit("waitable.update.copied")
	// sync(waitable.state): release
	putBetween(&x.words.copying, next)
	c.set(&x.words.current, next)
}

// String renders the state on one line.
func (x *Waitable[S, E]) String() string {
	s := fmt.Sprintf("waitable %s: %+v", objectName(x.object), x.State())
	if err := x.Err(); err != nil {
		s += ", " + err.Error()
	}
	return s
}
