package prims

import (
	"context"
	"fmt"
	"strings"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var _ = crashpoint.Register("waitable.lose.marked")

// Rules are a program's own code, which runs with the queue lock held, and also where a
// process serves the waits of others or cleans up after a death. A rule that panics, or
// that ends its goroutine as t.FailNow does, must neither keep the lock nor end the
// code that runs it on behalf of another process. So:
//
//   - a rule works on a copy of the state, which counts once the rule has returned;
//   - if it does not return, the Waitable is marked as not recoverable, and no rule is
//     called any more until Recover succeeds;
//   - a panic goes on where the rule was run for the call itself (locked, enqueue), and
//     ends where it was run for others (guarded);
//   - nothing stops runtime.Goexit, so goroutines of this library, and a call that cleans up
//     after a death, run rules in a goroutine of their own (aside).

// guarded runs rules for others by f, unless x is not recoverable.
func (x *Waitable[S, E]) guarded(f func()) {
	if x.lost() {
		return
	}
	done := false
	defer func() {
		if !done {
			x.markLost(recover())
		}
	}()
	f()
	done = true
}

// aside runs f in a goroutine of its own, and reports whether it returned.
func aside(f func()) (returned bool) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
		returned = true
	}()
	<-ended
	return returned
}

// reapIfDue reaps, with the queue lock held, if a participant has died since the last time.
func (x *Waitable[S, E]) reapIfDue(b *wakes) {
	if m := x.mon; m.reapDue() && !aside(func() { m.sweep(b) }) {
		x.resolve(b)
	}
}

// asideFromRules keeps the rules away from goroutines that have to survive them.
func (x *Waitable[S, E]) asideFromRules() {
	m := x.mon
	m.queueLock.alsoCheck = func() { aside(m.check) }
	m.queueLock.repair = func() (err error) {
		if !aside(func() { err = m.replay() }) {
			err = m.replay() // now x is not recoverable, and no rule is called
		}
		return err
	}
}

// fail is the end of a call whose rule did not return: it ends all waits, gives the
// queue lock back, calls after, and lets a panic with v go on.
func (x *Waitable[S, E]) fail(v any, b *wakes, after func()) {
	x.markLost(v)
	x.resolve(b)
	x.mon.leave(b)
	if after != nil {
		after()
	}
	if v != nil {
		panic(v)
	}
}

// lost reports whether x is not recoverable.
func (x *Waitable[S, E]) lost() bool { return x.words.lostBy.Load() != 0 }

// markLost notes, with the queue lock held, that a rule panicked with v in this process,
// or, where v is nil, that it ended its goroutine.
func (x *Waitable[S, E]) markLost(v any) {
	if x.lost() {
		return
	}
	text := "runtime.Goexit"
	if v != nil {
		text = fmt.Sprint(v)
	}
	clear(x.words.lostText[:])
	copy(x.words.lostText[:], text)
	// sync(waitable.lost): release
	x.words.lostBy.Store(uint64(x.name))
	crashpoint.Hit("waitable.lose.marked")
}

// notRecoverable is the error of an operation of an object that is not recoverable.
func (x *Waitable[S, E]) notRecoverable(op string) error {
	// sync(waitable.lost): acquire
	by := arenakernel.ParticipantID(x.words.lostBy.Load() & arenakernel.ParticipantIDMask)
	return x.mon.fail(op, shmsync.ErrNotRecoverable, x.a.Who(by), "a rule did not return: "+lostText(x.words))
}

// lostText is what is known of the panic that made a Waitable not recoverable. A peer
// may have written anything there.
func lostText(w *waitableWords) string {
	text, _, _ := strings.Cut(string(w.lostText[:]), "\x00")
	return strings.ToValidUTF8(text, "")
}

// Err tells whether x can be used: it is nil, or an error that Is ErrNotRecoverable, or
// ErrCanceled after Stop. Like State it waits for nothing.
func (x *Waitable[S, E]) Err() error {
	if err := x.mon.opening.error("waitable.err"); err != nil {
		return err
	}
	switch {
	case x.lost():
		return x.notRecoverable("waitable.err")
	case x.words.stopped.Load() != 0:
		return x.stopped()
	}
	return nil
}

// Recover makes a Waitable usable again that is not recoverable because a rule did not
// return: it calls repair with a copy of the state, which is that before the rule, and
// makes the copy the state. Claims that processes hold stay, and the state that repair
// leaves has to agree with them; those of processes that died meanwhile are undone by
// the rules right after it. When repair returns an error, or panics, x stays as it is,
// and Recover returns the error.
//
// Recover of a Waitable that can be used does not call repair. Its own errors are those
// of Wait. It panics when repair is nil.
func (x *Waitable[S, E]) Recover(repair func(s *S) error) error {
	return x.RecoverContext(context.Background(), repair)
}

// RecoverContext is Recover that ends with ctx.Err() when ctx ends before repair is called.
func (x *Waitable[S, E]) RecoverContext(ctx context.Context, repair func(s *S) error) error {
	mustHaveRepair(repair != nil, "waitable "+objectName(x.object))
	if err := x.mon.enter(ctx); err != nil {
		return err
	}
	var failed error
	x.locked(func() (changed bool) {
		if !x.lost() {
			return false
		}
		s := x.state()
		if failed = repair(&s); failed != nil {
			return false
		}
		var c change
		c.set(&x.words.lostBy, 0)
		x.change(&c, &s)
		x.mon.commit(&c)
		x.reap(x.mon.absent)
		return true
	})
	switch {
	case failed != nil:
		return x.mon.fail("waitable.recover", shmsync.ErrNotRecoverable, nil, "the repair failed: "+failed.Error())
	case x.lost():
		return x.notRecoverable("waitable.recover")
	}
	return nil
}
