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

// A scene is an operation of a primitive in a situation. A test can run a scene repeatedly with the same objects, even
// after a victim has died.
type scene struct {
	name string
	// open opens the objects of the scene in a process.
	open func(a *arena.Arena) (part, error)
	// waiters is the number of surviving goroutines that run part.wait.
	waiters int
	// sacrificed makes another process run part.prep and die before the operation. The victim does not run
	// part.prep.
	sacrificed bool
	// unjoined makes the victim join the arena as a part of the operation, so the victim has no objects.
	unjoined bool
	// owing says that part.use, and not a reaper, frees some of the blocks that dead processes have left.
	owing bool
	// fresh gives every kill objects of its own. The variable object has the name of these objects.
	fresh bool
	// c makes the victim a process in C.
	c *sceneInC
	// newcomer is the object that a newcomer in C checks in each image, or "".
	newcomer string
}

// object is the name of the object of a fresh scene.
var object string

// dead reports whether the victim is dead.
var dead atomic.Bool

// A part has the calls of one process in a scene. Each function may be nil.
type part struct {
	prep func() // the victim calls prep before the tester steps the victim
	op   func() // the operation: the tester steps the victim through op
	hold func() // a survivor calls hold first, to get what the victim is to wait for
	free func() // the same survivor calls free when the victim sleeps or is dead
	late bool   // the survivor calls free only when the victim is dead
	// wait is what the waiters do. It ends after any death of the victim, too.
	wait func() error
	// rescue completes what the dead victim has left undone, if the waiters wait for that. A survivor calls rescue
	// repeatedly. rescue does nothing if nothing is left to complete.
	rescue func()
	use    func() error // any process uses the object once and restores its state; no other process uses it meanwhile
	close  func() error
}

var scenes []scene

func addScene(s scene) { scenes = append(scenes, s) }

// aLock is any exclusive or shared hold.
type aLock struct {
	lock    func(ctx context.Context) error
	try     func() bool
	unlock  func()
	recover func(ctx context.Context, repair func() error) error // nil if the lock cannot be recovered
	close   func() error
}

// died has the labels of the processes whose death may be reported.
var died = map[string]bool{"victim": true, "sacrifice": true}

// told returns an error unless err is ErrOwnerDead and names a process whose label is in the map died.
func told(err error) error {
	var e *shmsync.Error
	if !errors.As(err, &e) || !errors.Is(err, shmsync.ErrOwnerDead) {
		return fmt.Errorf("neither success nor the death of an owner: %w", err)
	}
	if e.Who == nil || !died[e.Who.Label] {
		return fmt.Errorf("it says that %v died: %w", e.Who, err)
	}
	return nil
}

// take takes the lock, and recovers it if its owner died.
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
			return fmt.Errorf("a lock that is released by a death has reported the death: %w", err)
		}
		if err := l.recover(ctx, func() error { return nil }); err != nil {
			return fmt.Errorf("recover: %w", err)
		}
	}
}

// limit is how long a surviving process waits for anything.
const limit = time.Minute

// limited returns a context for a wait of a surviving process. Its timeout is longer than limit, because on a
// busy machine a victim that is stepped may take a minute.
func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 4*limit)
}

// turn takes and releases the lock.
func (l *aLock) turn() error {
	ctx, cancel := limited()
	defer cancel()
	if err := l.take(ctx); err != nil {
		return err
	}
	l.unlock()
	return nil
}

// use calls turn, and then a TryLock that has to succeed.
func (l *aLock) use() error {
	if err := l.turn(); err != nil {
		return err
	}
	if !l.try() {
		return errors.New("a TryLock of a free lock has failed")
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

// recoverable has the names of the locks with a Recover.
var recoverable = map[string]bool{}

// waits returns a function that calls wait with a limited context.
func waits(wait func(ctx context.Context) error) func() error {
	return func() error {
		ctx, cancel := limited()
		defer cancel()
		return wait(ctx)
	}
}
