//go:build linux && amd64

package stepkill_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
)

// A scene is an operation of a primitive in a situation. It may be begun again and again
// with the same objects, also after a death in it.
type scene struct {
	name string
	// open opens the objects in one process.
	open func(a *arena.Arena) (part, error)
	// waiters is how many goroutines of those that live run part.wait.
	waiters int
	// sacrificed has another process run part.prep before, and die; the victim does
	// not run it.
	sacrificed bool
	// unjoined has the victim join the arena within the operation: it
	// has no objects.
	unjoined bool
	// owing says that part.use ends what some of the dead have left, and no reaper does.
	owing bool
	// fresh has every kill use objects of its own, called object.
	fresh bool
	// c has a process in C be the victim.
	c *sceneInC
	// newcomer is the object that a newcomer in C checks in each image, or "".
	newcomer string
}

// object is what the object of a fresh scene is called.
var object string

// dead says that the victim is dead.
var dead atomic.Bool

// A part is the calls of a process in a scene. Each function may be nil.
type part struct {
	prep func() // the victim, before it is stepped
	op   func() // the victim, stepped
	hold func() // a surviving process, before all: what makes the victim wait
	free func() // the same process, when the victim sleeps, or is dead
	late bool   // free only when it is dead
	// wait is what waiters do. It ends, also after any death.
	wait func() error
	// rescue does what the dead victim has not done, if others wait for it. A surviving process
	// calls it again and again. It does nothing if there is nothing left to do.
	rescue func()
	use    func() error // a whole turn, by anybody, when nobody else is at it; leaves things as at first
	close  func() error
}

var scenes []scene

func addScene(s scene) { scenes = append(scenes, s) }

// aLock is any exclusive or shared hold.
type aLock struct {
	lock    func(ctx context.Context) error
	try     func() bool
	unlock  func()
	recover func(ctx context.Context, repair func() error) error // nil where there is none
	close   func() error
}

// died are the labels of the processes that may be told to have died.
var died = map[string]bool{"victim": true, "sacrifice": true}

// told checks that an error is the end of an owner, and of which.
func told(err error) error {
	var e *shmsync.Error
	if !errors.As(err, &e) || !errors.Is(err, shmsync.ErrOwnerDead) {
		return fmt.Errorf("neither done nor an owner's death: %w", err)
	}
	if e.Who == nil || !died[e.Who.Label] {
		return fmt.Errorf("it says that %v died: %w", e.Who, err)
	}
	return nil
}

// take locks, whatever has become of it.
func (l *aLock) take(ctx context.Context) error {
	for {
		err := l.lock(ctx)
		if err == nil {
			return nil
		}
		if err := told(err); err != nil {
			return err
		}
		if l.recover == nil {
			return fmt.Errorf("a death is told where holds come back: %w", err)
		}
		if err := l.recover(ctx, func() error { return nil }); err != nil {
			return fmt.Errorf("recover: %w", err)
		}
	}
}

// limit is how long a surviving process waits for anything.
const limit = time.Minute

// limited bounds a wait of a surviving process, by more than limit: on a busy machine a
// victim that is stepped may take a minute.
func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 4*limit)
}

// turn takes and releases.
func (l *aLock) turn() error {
	ctx, cancel := limited()
	defer cancel()
	if err := l.take(ctx); err != nil {
		return err
	}
	l.unlock()
	return nil
}

// use is turn, and a TryLock that has to succeed.
func (l *aLock) use() error {
	if err := l.turn(); err != nil {
		return err
	}
	if !l.try() {
		return errors.New("a free lock does not let itself be tried")
	}
	l.unlock()
	return nil
}

// addLock adds the scenes of a lock.
func addLock(name string, open func(a *arena.Arena) (*aLock, error)) {
	bg := context.Background()
	add := func(what string, waiters int, f func(l *aLock, p *part)) {
		addScene(scene{name: name + "/" + what, waiters: waiters, sacrificed: what == "recover", open: func(a *arena.Arena) (part, error) {
			l, err := open(a)
			if err != nil {
				return part{}, err
			}
			p := part{wait: l.turn, use: l.use, close: l.close}
			f(l, &p)
			return p, nil
		}})
	}
	must := func(f func(context.Context) error) func() {
		return func() {
			if err := f(bg); err != nil {
				panic(err)
			}
		}
	}
	add("lock", 0, func(l *aLock, p *part) { p.op = must(l.lock) })
	add("lock, again", 0, func(l *aLock, p *part) { p.prep, p.op = func() { l.turn() }, must(l.lock) })
	add("trylock", 0, func(l *aLock, p *part) { p.prep, p.op = func() { l.turn() }, func() { l.try() } })
	add("lock, waits", 2, func(l *aLock, p *part) {
		p.hold, p.op, p.free = must(l.take), func() { l.lock(bg) }, l.unlock
	})
	add("lock, gives up", 1, func(l *aLock, p *part) {
		p.late = true
		p.hold, p.free = must(l.take), l.unlock
		p.op = func() {
			ctx, cancel := context.WithTimeout(bg, 3*time.Millisecond)
			defer cancel()
			l.lock(ctx)
		}
	})
	add("unlock", 0, func(l *aLock, p *part) { p.prep, p.op = must(l.take), l.unlock })
	add("unlock, 3 wait", 3, func(l *aLock, p *part) { p.prep, p.op = must(l.take), l.unlock })
	add("unlock, 12 wait", 12, func(l *aLock, p *part) { p.prep, p.op = must(l.take), l.unlock })
	if l := (&aLock{}); l.recover == nil && recoverable[name] {
		add("recover", 0, func(l *aLock, p *part) {
			p.prep = must(l.take)
			p.op = func() { l.recover(bg, func() error { return nil }) }
		})
	}
}

// recoverable are the locks with a Recover.
var recoverable = map[string]bool{}

// waits makes the wait of something that is reached by reach, unless the dead has
// done that: done says so.
func waits(wait func(ctx context.Context) error) func() error {
	return func() error {
		ctx, cancel := limited()
		defer cancel()
		return wait(ctx)
	}
}
