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

// Rules are a program's own code. They run with the queue lock held, and also when a process serves the waits
// of others or cleans up after a death. If a rule panics, or ends its goroutine as t.FailNow does, the lock
// must still be released. A call that runs the rule for another process must not end either. So:
//
//   - a rule works on a copy of the state, which becomes the state once the rule has returned;
//   - if a rule does not return, the Waitable is marked as not recoverable, and no rule is
//     called any more until Recover succeeds;
//   - a panic continues if the rule was run for the call itself (locked, enqueue), and
//     stops if the rule was run for others (guarded);
//   - nothing stops runtime.Goexit, so goroutines of this library, and a call that cleans up
//     after a death, run rules in a separate goroutine (aside).

// guarded calls f, which runs rules for other processes or other waits. So a panic of a rule does not continue in
// the caller. If x is not recoverable, guarded does nothing.
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

// aside runs f in a separate goroutine, and reports whether f returned instead of panicking or ending its
// goroutine.
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

// reapIfDue undoes the claims of dead participants if a participant has died since the last reap. It does so in a
// separate goroutine, because that runs rules. The caller holds the queue lock.
func (x *Waitable[S, E]) reapIfDue(b *wakes) {
	if m := x.mon; m.reapDue() && !aside(func() { m.sweep(b) }) {
		x.resolve(b)
	}
}

// asideFromRules sets up the monitor so that goroutines which must survive a rule run the rules in separate
// goroutines.
func (x *Waitable[S, E]) asideFromRules() {
	m := x.mon
	m.queueLock.alsoCheck = func() { aside(m.check) }
	m.queueLock.repair = func() (err error) {
		if !aside(func() { err = m.replay() }) {
			err = m.replay() // x is not recoverable by now, so replay calls no rule
		}
		return err
	}
}

// fail ends a call in which a rule panicked with v or ended its goroutine. It ends all waits, releases the queue
// lock, and calls the function after. Then it continues the panic, if v is not nil.
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

// lost reports whether x is not recoverable, because a rule has panicked or ended its goroutine.
func (x *Waitable[S, E]) lost() bool { return x.words.lostBy.Load() != 0 }

// markLost makes x not recoverable. It records that a rule panicked with v in this process or, if v is nil,
// that a rule ended its goroutine. The queue lock is held.
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

// notRecoverable returns the error of an operation on x while x is not recoverable.
func (x *Waitable[S, E]) notRecoverable(op string) error {
	// sync(waitable.lost): acquire
	by := arenakernel.ParticipantID(x.words.lostBy.Load() & arenakernel.ParticipantIDMask)
	return x.mon.fail(op, shmsync.ErrNotRecoverable, x.a.Who(by), "a rule did not return: "+lostText(x.words))
}

// lostText returns the text of the panic that made a Waitable not recoverable. A peer may have overwritten the
// text.
func lostText(w *waitableWords) string {
	text, _, _ := strings.Cut(string(w.lostText[:]), "\x00")
	return strings.ToValidUTF8(text, "")
}

// Err returns nil if x can be used. Otherwise it returns an error that Is ErrNotRecoverable or, after Stop, an
// error that Is ErrCanceled. Like State it does not wait.
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

// Recover makes x usable again after a rule has panicked or ended its goroutine. It calls repair with a copy of the
// state from before the rule, and makes the copy the state. Claims that processes hold stay, and the state that
// repair leaves has to be consistent with them. Right after that, the rules undo the claims of processes that have
// died meanwhile. If repair returns an error, or panics, x remains as it is, and Recover returns the error.
//
// If the Waitable can be used, Recover does not call repair. Apart from an error of repair, Recover returns the
// errors of Wait. It panics if repair is nil.
func (x *Waitable[S, E]) Recover(repair func(s *S) error) error {
	return x.RecoverContext(context.Background(), repair)
}

// RecoverContext does what Recover does, but returns ctx.Err() when ctx ends before repair is called.
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
