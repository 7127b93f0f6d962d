package prims

import (
	"context"
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var _ = crashpoint.Register("waitable.lose.marked")

// Rules are a program's own code. A process also runs them for the waits of other processes, and when it cleans up
// after a death. If a rule panics, or ends its goroutine as t.FailNow does, the process must still release its private
// lock. A call that runs the rule for another process must not end either. So:
//
//   - a rule works on a private copy of the state, which becomes the state once the rule has returned;
//   - if a rule does not return, the Waitable is marked as not recoverable, and no rule is
//     called any more until Recover succeeds;
//   - a panic continues if the rule was run for the call itself (locked), and stops if the rule was run for others
//     (guarded);
//   - nothing stops runtime.Goexit, so goroutines of this library, and a call that cleans up
//     after a death, run rules in a separate goroutine (aside).

// locked calls f with the private lock held, serves the queue if f has changed the state, and releases the lock. If a
// rule that f runs panics or ends its goroutine, x becomes not recoverable.
func (x *Waitable[S, E]) locked(f func(c *recordedChange, b *wakes) (changed bool)) {
	x.yield(context.Background())
	x.underLock(f)
}

// underLock does what locked does, but does not call yield. So it begins even if another call has asked all calls to
// wait.
func (x *Waitable[S, E]) underLock(f func(c *recordedChange, b *wakes) (changed bool)) {
	b, done := takeWakes(), false
	defer x.reapMissed()
	defer x.wake(b)
	x.lockForRules()
	defer x.unlockForRules()
	c := &x.scratch
	defer func() {
		if done {
			return
		}
		v := recover()
		if !x.marked {
			x.markLost(c, b, v)
		}
		x.refuseAll(c, b)
		if v != nil {
			panic(v)
		}
	}()
	if x.reapDue() && !x.lost() {
		x.reapAside(c, b)
	}
	x.marked = false
	// If a wait is queued only after the change, its own process serves the queue.
	if f(c, b) && valueIn(x.first) != 0 {
		x.resolve(c, b)
	}
	done = true
}

// lockForRules locks x.private for a call that may run rules. It panics if a rule has made the call, because the
// goroutine that runs rules has the lock already.
func (x *waitableCore) lockForRules() {
	if !x.private.TryLock() {
		if x.ruling.mine() {
			panic(waitsForItself("a call of "+x.opening.title(nil), "a rule of "+x.opening.title(nil)))
		}
		x.private.Lock()
	}
	g := asm.Goroutine() | goroutineUnknown
	storeMark(&x.ruling.is, g)
	storeMark(&x.inRule.is, g)
}

func (x *waitableCore) unlockForRules() {
	x.inRule.end()
	x.ruling.end()
	x.private.Unlock()
}

// rulesAside calls f, which runs rules, in a separate goroutine, and reports whether f returned. The caller holds
// x.private. Close of the arena waits for the caller, so it waits for f, too.
func (x *waitableCore) rulesAside(f func()) (returned bool) {
	ruling, inRule := x.ruling.is.Load(), x.inRule.is.Load()
	defer func() {
		x.ruling.is.Store(ruling)
		x.inRule.is.Store(inRule)
	}()
	return aside(func() {
		x.ruling.begin()
		x.inRule.begin()
		defer func() { // before the goroutine ends: a later goroutine may get the number that the marks store
			x.inRule.end()
			x.ruling.end()
		}()
		f()
	})
}

// guarded calls f, which runs rules for other processes or other waits. So a panic of a rule does not continue in
// the caller. If x is not recoverable, guarded does nothing. It reports whether f has returned. The caller holds
// x.private.
func (x *Waitable[S, E]) guarded(c *recordedChange, b *wakes, f func()) (returned bool) {
	if x.lost() {
		return false
	}
	defer func() {
		if !returned {
			v := recover()
			x.markLost(c, b, v)
			x.marked = v == nil // the goroutine is ending, and the deferred functions of underLock run next
		}
	}()
	f()
	returned = true
	return returned
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

// markLost makes x not recoverable. It records that a rule panicked with v in this process or, if v is nil, that a
// rule ended its goroutine. The caller holds x.private.
func (x *waitableCore) markLost(c *recordedChange, b *wakes, v any) {
	var text [waitableTextBytes]byte
	if v != nil {
		copy(text[:], fmt.Sprint(v))
	} else {
		copy(text[:], "runtime.Goexit")
	}
	for {
		// The loop repeats only if another process has changed the Waitable. So it is lock-free. An error means
		// that a peer has overwritten the Waitable; then the next call reports it.
		if err := x.begin(c, b); err != nil || x.lostIn(c) != 0 {
			return
		}
		// The text is written before the record, and no process reads the text before it has read the record. The
		// exception is a process that still reads the text of an earlier record: see textOf.
		if at := x.ownText(); at != nil {
			copyText(at, &text)
		}
		c.set(waitableLostWord, 0, &x.words.lostBy, uint32(x.name))
		// sync(waitable.lost): release
		switch ok, err := x.end(c, b); {
		case ok:
			crashpoint.Hit("waitable.lose.marked")
			return
		case err != nil:
			return
		}
	}
}

// Err returns nil if x can be used. Otherwise it returns an error that Is ErrNotRecoverable or, after Stop, an
// error that Is ErrCanceled. Like State it does not wait.
func (x *Waitable[S, E]) Err() error {
	s, ok := x.opening.tryServe(x.queue)
	if !ok {
		return x.closed()
	}
	defer s.end()
	x.reapIfDue()
	x.completeBare() // a process may have died, or been stopped, before it carried out its last change
	// sync(waitable.lost): acquire
	if by := x.lostBy(); by != 0 {
		return x.notRecoverable("waitable.err", by)
	}
	if valueIn(&x.words.stopped) != 0 {
		return x.wasStopped()
	}
	return nil
}

// Recover makes x usable again after a rule has panicked or ended its goroutine. It calls repair with a copy of the
// state from before the rule, and makes the copy the state. Claims that processes hold stay, and the state that
// repair leaves has to be consistent with them. Right after that, the rules undo the claims of processes that have
// died meanwhile. If repair returns an error, or panics, x remains as it is, and Recover returns the error.
//
// Like a rule, repair must do nothing but change *s. Recover excludes nobody: if several goroutines call it at the
// same time, in one process or in several, each may call its repair. The repair that ends first determines the state,
// and the other repairs have no effect.
//
// If the Waitable can be used, Recover does not call repair. Apart from an error of repair, Recover returns the
// errors of Wait. It panics if repair is nil.
func (x *Waitable[S, E]) Recover(repair func(s *S) error) error {
	return x.RecoverContext(context.Background(), repair)
}

// RecoverContext does what Recover does. It does not wait, but may have to repeat the repair. Before each repetition it
// returns ctx.Err() if ctx has ended. It calls repair the first time even though ctx has ended.
func (x *Waitable[S, E]) RecoverContext(ctx context.Context, repair func(s *S) error) error {
	mustHaveRepair(repair != nil, "waitable "+objectName(x.object))
	// stayIfOpen keeps the words valid until this call ends. Close of the handle does not wait for this call,
	// because a repair may take long.
	if !x.opening.stayIfOpen() {
		return x.closed()
	}
	defer x.opening.leaveStay(x.queue)
	defer x.opening.repairing(nil, false).end()
	for {
		// The loop repeats only if another call has recovered x meanwhile, and a rule has failed again.
		s, lost, err := x.lostState()
		if err != nil || lost.participant() == 0 {
			return err
		}
		if err := repair(&s); err != nil {
			return x.fail("waitable.recover", shmsync.ErrNotRecoverable, nil, "the repair failed: "+err.Error())
		}
		if over, err := x.recovered(&s, lost); over || err != nil {
			return err
		}
		if err := orEndless(ctx).Err(); err != nil {
			return err
		}
	}
}

// lostState returns a copy of the state, and the word lostBy. If the value of that word is 0, x is not lost.
func (x *Waitable[S, E]) lostState() (s S, lost recordedWord, err error) {
	if !x.queue.EnterStay() {
		return s, 0, x.closed()
	}
	defer x.queue.ExitLasting()
	b := takeWakes()
	defer x.wake(b)
	var c recordedChange
	if err = x.begin(&c, b); err != nil {
		return s, 0, err
	}
	// The state does not change while lostBy has this value. So it does not matter that the copy is made later.
	lost = recordedWord(x.words.lostBy.Load())
	var tries attempts
	defer x.over(&tries)
	_, err = x.copyState(&c, b, &s, &tries)
	return s, lost, err
}

// recovered makes *s the state, and x usable, if the word lostBy still has the value in the parameter lost. While x is
// not recoverable, no change of the state takes effect. over is false if another call has recovered x, and a rule has
// failed again after that.
func (x *Waitable[S, E]) recovered(s *S, lost recordedWord) (over bool, err error) {
	if !x.queue.EnterStay() {
		return true, x.closed()
	}
	defer x.queue.ExitLasting()
	x.locked(func(c *recordedChange, b *wakes) (changed bool) {
		for {
			// The loop repeats only if another process has changed the Waitable. So it is lock-free.
			if err = x.begin(c, b); err != nil {
				return false
			}
			if is := recordedWord(x.words.lostBy.Load()); is != lost {
				if x.load() != c.c {
					continue
				}
				over = is.participant() == 0
				return false
			}
			x.put(c, s)
			c.set(waitableLostWord, 0, &x.words.lostBy, 0)
			var ok bool
			if ok, err = x.end(c, b); ok || err != nil {
				over = ok
				break
			}
		}
		if over {
			x.reapAside(c, b)
		}
		return over
	})
	if over && err == nil && x.lost() { // a rule has failed for a claim of a dead process
		err = x.notRecoverable("waitable.recover", x.lostBy())
	}
	return over, err
}
