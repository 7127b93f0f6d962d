//go:build linux

package arenatest_test

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// guarded is the data that the participants change under each lock.
type guarded struct{ N, M uint64 }

// TestGuardedDataIsNoRace has two participants that use primitives of every kind for data in the
// arena. Under the race detector they share a mapping that the detector watches. So the detector
// fails this test if a primitive does not order the accesses to the data, or if the library's own
// accesses race.
func TestGuardedDataIsNoRace(t *testing.T) {
	rounds := int(proctest.Rounds(20, 200))
	for name, open := range map[string]func(a *arena.Arena) func(f func(v *guarded)){
		"mutex":   func(a *arena.Arena) func(func(*guarded)) { return locked(a, first(prims.OpenMutex(a, "m", nil))) },
		"fair":    func(a *arena.Arena) func(func(*guarded)) { return locked(a, first(prims.OpenFairMutex(a, "m", nil))) },
		"cohort":  func(a *arena.Arena) func(func(*guarded)) { return locked(a, first(prims.OpenCohortMutex(a, "m", nil))) },
		"rwmutex": func(a *arena.Arena) func(func(*guarded)) { return locked(a, first(prims.OpenRWMutex(a, "m", nil))) },
		"spin":    func(a *arena.Arena) func(func(*guarded)) { return locked(a, first(prims.OpenSpinLock(a, "m", nil))) },
		"rwspin":  func(a *arena.Arena) func(func(*guarded)) { return locked(a, first(prims.OpenRWSpinLock(a, "m", nil))) },
		"semaphore": func(a *arena.Arena) func(func(*guarded)) {
			return locked(a, permit{first(prims.OpenSemaphore(a, "s", 1, nil))})
		},
		"keys": func(a *arena.Arena) func(func(*guarded)) {
			return locked(a, &key{x: first(prims.OpenMultiLock(a, "x", nil))})
		},
		"rollback": func(a *arena.Arena) func(func(*guarded)) {
			m := first(prims.OpenMutex(a, "m", &prims.MutexOptions{Policy: prims.PolicyRollback}))
			v := first(arena.Value[guarded](a, "v"))
			return func(f func(*guarded)) {
				must(m.Update(func(tx *prims.Tx) error {
					prims.Save(tx, v)
					f(v)
					return nil
				}))
			}
		},
		"synchronized": func(a *arena.Arena) func(func(*guarded)) {
			s := first(prims.OpenSynchronized(a, "s", guarded{}, nil))
			v := first(arena.Value[guarded](a, "v"))
			return func(f func(*guarded)) {
				must(s.Update(func(x *guarded) error {
					f(x)
					f(v)
					return nil
				}))
				if x := s.Load(); x.N != x.M {
					panic("torn")
				}
			}
		},
		"queue": func(a *arena.Arena) func(func(*guarded)) {
			q := first(prims.OpenQueue[uint64](a, "q", 1, nil)) // a token
			v := first(arena.Value[guarded](a, "v"))
			if a.Self().Slot() == 1 {
				must(q.Put(1))
			}
			return func(f func(*guarded)) {
				l := first(q.Lease())
				f(v)
				l.Nack()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := arenatest.New(t, nil)
			var wg sync.WaitGroup
			var last *guarded
			for _, label := range []string{"a", "b"} {
				a := w.Join(label)
				update := open(a)
				last = first(arena.Value[guarded](a, "v"))
				for range 2 {
					wg.Go(func() {
						for range rounds {
							update(func(v *guarded) {
								v.N++
								v.M++
							})
						}
					})
				}
			}
			wg.Wait()
			require.Equal(t, guarded{uint64(4 * rounds), uint64(4 * rounds)}, *last)
		})
	}
}

// locked returns a function that holds the lock l while it calls its argument f. It passes f the data
// in the arena that l guards.
func locked(a *arena.Arena, l sync.Locker) func(f func(v *guarded)) {
	v := first(arena.Value[guarded](a, "v"))
	return func(f func(*guarded)) {
		l.Lock()
		f(v)
		l.Unlock()
	}
}

// permit is a Semaphore with one permit, used as a lock.
type permit struct{ s *prims.Semaphore }

func (p permit) Lock()   { p.s.Acquire(1) }
func (p permit) Unlock() { p.s.Release(1) }

// key is one key of a MultiLock, used as a lock.
type key struct {
	x *prims.MultiLock
	h prims.Hold
}

func (k *key) Lock() {
	h := k.x.Lock(7)
	k.h = h
}

func (k *key) Unlock() {
	h := k.h
	h.Unlock()
}

func first[T any](v T, err error) T {
	must(err)
	return v
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// TestErrorBesideAPanic: while one participant makes a Waitable not recoverable again and again, the errors of another
// participant have the text of one of the panics, or none. Under the race detector, there is no race.
func TestErrorBesideAPanic(t *testing.T) {
	w := arenatest.New(t, nil)
	texts, round := []string{strings.Repeat("even", 30), strings.Repeat("odd", 40)}, 0
	rules := prims.Rules[int64, int32]{Claim: func(*int64, int32) bool { panic(texts[round%2]) }}
	x := first(prims.OpenWaitable(w.Join("a"), "x", 0, rules, nil))
	y := first(prims.OpenWaitable(w.Join("b"), "x", 0, rules, nil))
	var enough atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for ; !enough.Load(); round++ {
			require.Panics(t, func() { x.TryWait(1) })
			runtime.Gosched()
			require.NoError(t, x.Recover(func(*int64) error { return nil }))
		}
	})
	defer wg.Wait()
	defer enough.Store(true)
	for found := 0; found < int(proctest.Rounds(300, 3000)); {
		if err := y.Err(); err != nil {
			found++
			_, text, _ := strings.Cut(err.Error(), "a rule did not return: ")
			if !strings.Contains(text, "the text of its panic is gone") {
				require.Contains(t, texts, text)
			}
		}
	}
}
