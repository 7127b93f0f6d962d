//go:build linux

package subjects

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/child"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// libSubjects are primitives of this module. A suffix of a name says how the subject differs from the subject without
// the suffix:
//
//   - -nofence has no biased holds, as on a kernel without membarrier(2).
//   - -checked is never biased toward a process.
//   - -norobust, -nowaitv and -noofd each lack one of the kernel features that report deaths.
//   - -bare reports deaths only by the byte lock.
//   - -50m and -1g: each process that is killed has that much additional private memory.
//   - -nothreads lacks the feature by which the library learns that a process is gone
//     before the kernel has freed the memory of that process.
var libSubjects = []*bench.Subject{
	{By: bench.Library, Prim: "mutex", Spins: true, Segment: newArena, Check: shmsync.FeatureMembarrier.Check, Open: openMutex,
		Brief:     []string{"uncontended", "lock", "crash", "idle", "home", "intruder"},
		Scenarios: []string{"uncontended", "lock", "crash", "idle", "rw", "home", "intruder"}},
	{By: bench.Library, Prim: "mutex-checked", Segment: newArena, Open: openMutexWith(&prims.MutexOptions{Checked: true}), Brief: []string{"intruder"}, Scenarios: []string{"intruder"}},
	{By: bench.Library, Prim: "mutex-nofence", Spins: true, Segment: newArena, Env: noFence, Open: openMutex,
		Brief:     []string{"uncontended"},
		Scenarios: []string{"uncontended", "lock", "idle", "crash"}},
	{By: bench.Library, Prim: "mutex-told", Segment: newArena, Check: shmsync.FeatureMembarrier.Check, Open: openTold, Brief: []string{}, Scenarios: []string{"crash"}},
	{By: bench.Library, Prim: "mutex-near", Spins: true, Segment: newArena, Open: openMutexWith(&prims.MutexOptions{Contention: prims.Contention{NearWakes: true}}), Brief: []string{}, Scenarios: []string{"lock"}},
	{By: bench.Library, Prim: "mutex-spinner", Spins: true, Segment: newArena, Open: openMutexWith(&prims.MutexOptions{Contention: prims.Contention{MaxSpinners: 1}}), Brief: []string{}, Scenarios: []string{"lock"}},
	{By: bench.Library, Prim: "mutex-norobust", Segment: newArena, Env: child.Without("robust"), Open: openMutex, Brief: []string{}, Scenarios: []string{"crash"}},
	{By: bench.Library, Prim: "mutex-nowaitv", Segment: newArena, Env: child.Without("waitv"), Open: openMutex, Brief: []string{}, Scenarios: []string{"crash"}},
	{By: bench.Library, Prim: "mutex-noofd", Segment: newArena, Env: child.Without("ofd"), Open: openMutex, Brief: []string{}, Scenarios: []string{"crash"}},
	{By: bench.Library, Prim: "mutex-bare", Segment: newArena, Env: child.Without("robust,waitv,membarrier"), Open: openMutex, Brief: []string{}, Scenarios: []string{"crash"}},
	{By: bench.Library, Prim: "mutex-told-50m", Segment: newArena, Startup: 200 * time.Millisecond, Open: withMemory(50<<20, openTold), Brief: []string{}, Scenarios: []string{"crash"}},
	{By: bench.Library, Prim: "mutex-50m", Segment: newArena, Startup: 200 * time.Millisecond, Open: withMemory(50<<20, openMutex), Brief: []string{}, Scenarios: []string{"crash"}},
	{By: bench.Library, Prim: "mutex-50m-nothreads", Segment: newArena, Startup: 200 * time.Millisecond, Env: child.Without("threads"), Open: withMemory(50<<20, openMutex), Brief: []string{}, Scenarios: []string{"crash"}},
	{By: bench.Library, Prim: "mutex-1g", Segment: newArena, Startup: 2 * time.Second, Open: withMemory(1<<30, openMutex), Brief: []string{}, Scenarios: []string{"crash"}},
	{By: bench.Library, Prim: "mutex-1g-nothreads", Segment: newArena, Startup: 2 * time.Second, Env: child.Without("threads"), Open: withMemory(1<<30, openMutex), Brief: []string{}, Scenarios: []string{"crash"}},
	{By: bench.Library, Prim: "futex", Segment: newArena, Open: openFutex,
		Scenarios: []string{"handoff", "wake", "idle"}},
	{By: bench.Library, Prim: "mutex-one", Segment: newArena, Open: openMutexCrowd, Brief: []string{}, Scenarios: []string{"waiters"}},
	{By: bench.Library, Prim: "mutex-each", Segment: newArena, Open: openMutexCrowd, Scenarios: []string{"waiters"}},
}

// mutex gives a prims.Mutex the methods that the scenarios call.
type mutex struct{ *prims.Mutex }

func openMutex(w *bench.Worker, thread int) (any, error) { return openMutexWith(nil)(w, thread) }

// openMutexWith returns a function that opens a mutex with the given options.
func openMutexWith(opts *prims.MutexOptions) func(*bench.Worker, int) (any, error) {
	return func(w *bench.Worker, _ int) (any, error) { return openMutexOf(w, opts) }
}

func openMutexOf(w *bench.Worker, opts *prims.MutexOptions) (any, error) {
	a, err := JoinArena(w)
	if err != nil {
		return nil, err
	}
	if err := awaitFence(a); err != nil {
		return nil, err
	}
	m, err := prims.OpenMutex(a, "mutex", opts)
	if err != nil {
		return nil, err
	}
	if w.Shape.Spin > 0 {
		m.SetSpin(spinOption(w.Shape.Spin))
	}
	if bench.ScenarioByID(w.Scenario).Name == "uncontended" {
		return mutex{m}, mutex{m}.bias()
	}
	return mutex{m}, nil
}

// bias locks and unlocks the mutex until it is biased toward this process, because the uncontended scenario measures a
// biased mutex. It returns an error if the mutex does not become biased.
func (m mutex) bias() error {
	return untilBiased(func() (word string) {
		m.Lock()
		word = m.State().Word
		m.Unlock()
		return word
	})
}

// untilBiased makes a lock biased toward this process. The function pair locks and unlocks the lock, and returns the
// state of the lock as text. untilBiased calls pair until this text contains "biased". After biasPairs calls, it
// returns an error.
func untilBiased(pair func() (word string)) error {
	if race.Enabled || !shmsync.FeatureMembarrier.Have() {
		return nil
	}
	for range biasPairs {
		if strings.Contains(pair(), "biased") {
			return nil
		}
	}
	return fmt.Errorf("not biased after %d quiet pairs", biasPairs)
}

func (m mutex) Pairs(n int, counter *uint64) {
	for range n {
		m.Lock()
		*counter++
		m.Unlock()
	}
}

// Inherit waits in LockContext until the owner has died, and becomes the owner through RecoverContext. During the
// repair, the caller has the lock exclusively.
func (m mutex) Inherit() (bench.Succession, error) { return inherit(m) }

// toldMutex is a mutex for measurements of the time until the survivor learns of the death of the owner. At that time,
// the survivor must not use the data yet, because a system call of the dead process may still write into it.
type toldMutex struct{ mutex }

func openTold(w *bench.Worker, thread int) (any, error) {
	m, err := openMutex(w, thread)
	if err != nil {
		return nil, err
	}
	return toldMutex{m.(mutex)}, nil
}

// Inherit does the same as mutex.Inherit, but the field Owned of the result is the time at which the survivor learned
// of the death.
func (m toldMutex) Inherit() (bench.Succession, error) {
	s, err := inherit(m)
	return bench.Succession{Owned: s.Told}, err
}

// residentMemory is the memory that the function withMemory has allocated in this process.
var residentMemory []byte

// withMemory returns a function that allocates the given number of bytes of private memory, and then opens a lock by a
// call of the function open. The first process allocates nothing.
func withMemory(bytes int, open func(*bench.Worker, int) (any, error)) func(*bench.Worker, int) (any, error) {
	return func(w *bench.Worker, thread int) (any, error) {
		if w.Proc != 0 && residentMemory == nil {
			residentMemory = make([]byte, bytes)
			for i := 0; i < bytes; i += os.Getpagesize() {
				residentMemory[i] = 1
			}
		}
		return open(w, thread)
	}
}

// recoverer is a lock that reports the death of its owner.
type recoverer interface {
	LockContext(ctx context.Context) error
	RecoverContext(ctx context.Context, repair func() error) error
}

// inherit waits until the lock m reports the death of its owner, and becomes the owner through RecoverContext.
func inherit(m recoverer) (s bench.Succession, err error) {
	ctx := context.Background()
	err = m.LockContext(ctx)
	s.Told = shmsync.Monotonic()
	if err == nil {
		return s, errors.New("the death was not reported")
	}
	if !errors.Is(err, shmsync.ErrOwnerDead) {
		return s, err
	}
	err = m.RecoverContext(ctx, func() error { s.Owned = shmsync.Monotonic(); return nil })
	if err != nil {
		return s, err
	}
	if s.Owned == 0 {
		return s, errors.New("recovered without a repair")
	}
	return s, m.LockContext(ctx)
}

// ping is one of two ends that pass a token to each other. There is a prims.Futex for each direction. A futex only
// counts posts, so Await computes the value of the token from the number of posts by the other end.
type ping struct {
	out, in *prims.Futex
	end     uint32
	got     uint64
}

func openFutex(w *bench.Worker, thread int) (any, error) {
	a, err := JoinArena(w)
	if err != nil {
		return nil, err
	}
	p := &ping{end: uint32(bench.End(w, thread))}
	if p.out, err = prims.OpenFutex(a, tokenNames[p.end], nil); err != nil {
		return nil, err
	}
	p.in, err = prims.OpenFutex(a, tokenNames[1-p.end], nil)
	return p, err
}

func (p *ping) Pass(v uint32) {
	if v == bench.LastToken {
		p.out.Stop()
		return
	}
	p.out.Post()
}

func (p *ping) Await() uint32 {
	p.got++
	switch err := p.in.Wait(p.got); {
	case errors.Is(err, shmsync.ErrCanceled):
		return bench.LastToken
	case err != nil:
		panic(err)
	}
	// The ends pass the token alternately, and each pass increments its value. The first end (number 0) receives the
	// values 2, 4, 6 and so on, and the second end receives 1, 3, 5 and so on.
	return 2*uint32(p.in.Get()) - p.end
}
