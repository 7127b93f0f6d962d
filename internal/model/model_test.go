package model

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// line returns a program of straight-line code, with one function for each step, from PC 0 on.
func line(steps ...func(x *Exec)) Program {
	return func(x *Exec) {
		pc := x.PC()
		if int(pc) == len(steps) {
			x.Disable()
			return
		}
		x.Goto(pc + 1)
		steps[pc](x)
	}
}

// ended returns a function for System.Done. The function reports whether each thread is halted or has done all its
// steps. The i-th argument is the number of steps of thread i. The programs of the threads come from the function line.
func ended(lengths ...uint8) func(*Sys) bool {
	return func(s *Sys) bool {
		for i, n := range lengths {
			if s.Thread[i].PC != n && s.Thread[i].Run != Halted {
				return false
			}
		}
		return true
	}
}

// outcomes returns the possible values of the first register of each of two threads, when both have
// ended and all stores have reached memory.
func outcomes(t *testing.T, threads ...ThreadSpec) map[string]bool {
	t.Helper()
	seen := map[string]bool{}
	y := System{
		Threads: threads,
		// Check sees every state. It records the registers of each state in which both threads have ended.
		Check: func(s *Sys) error {
			a, b := &s.Thread[0], &s.Thread[1]
			if a.PC == 2 && b.PC == 2 && a.buffered+b.buffered == 0 {
				seen[fmt.Sprint(a.R[0], b.R[0])] = true
			}
			return nil
		},
	}
	spec := Spec[Sys]{Init: []Sys{{}}, Next: (&stepper{System: &y}).next, Check: y.Check, Done: func(*Sys) bool { return true }}
	require.Nil(t, spec.Explore().Violation)
	return seen
}

func store(w int, v uint8) func(*Exec) { return func(x *Exec) { x.Store(w, v) } }
func load(w int) func(*Exec)           { return func(x *Exec) { *x.R(0) = x.Load(w) } }

// TestLitmus has the litmus tests of the amd64 memory model.
func TestLitmus(t *testing.T) {
	t.Run("store buffering", func(t *testing.T) {
		got := outcomes(t, ThreadSpec{Run: line(store(0, 1), load(1))}, ThreadSpec{Process: 1, Run: line(store(1, 1), load(0))})
		require.Equal(t, map[string]bool{"0 0": true, "0 1": true, "1 0": true, "1 1": true}, got)
	})
	t.Run("with exchange", func(t *testing.T) {
		set := func(w int) func(*Exec) { return func(x *Exec) { x.Update(w, func(uint8) uint8 { return 1 }) } }
		got := outcomes(t, ThreadSpec{Run: line(set(0), load(1))}, ThreadSpec{Process: 1, Run: line(set(1), load(0))})
		require.NotContains(t, got, "0 0")
	})
	t.Run("message passing", func(t *testing.T) {
		read := line(func(x *Exec) { *x.R(0) = 2 * x.Load(1) }, func(x *Exec) { *x.R(0) |= x.Load(0) })
		got := outcomes(t, ThreadSpec{Run: line(store(0, 1), store(1, 1))}, ThreadSpec{Process: 1, Run: read})
		require.Equal(t, map[string]bool{"0 0": true, "0 1": true, "0 3": true}, got)
	})
	t.Run("forwarding", func(t *testing.T) {
		got := outcomes(t, ThreadSpec{Run: line(store(0, 1), load(0))}, ThreadSpec{Process: 1, Run: line(load(0), load(0))})
		require.Equal(t, map[string]bool{"1 0": true, "1 1": true}, got)
	})
	// One thread makes a membarrier and a load in its second step. The other thread needs no barrier.
	asymmetric := func(unregistered bool) map[string]bool {
		slow := line(
			func(x *Exec) { x.Update(1, func(uint8) uint8 { return 1 }) },
			func(x *Exec) { x.Membarrier(); *x.R(0) = x.Mem[0] },
		)
		return outcomes(t, ThreadSpec{Run: line(store(0, 1), load(1)), Unregistered: unregistered}, ThreadSpec{Process: 1, Run: slow})
	}
	t.Run("membarrier", func(t *testing.T) { require.NotContains(t, asymmetric(false), "0 0") })
	t.Run("membarrier without registration", func(t *testing.T) { require.Contains(t, asymmetric(true), "0 0") })
}

// waker is the smallest protocol with a sleep: a thread waits for word 0.
func waker(wakeFirst bool, n int) System {
	set := func(x *Exec) { x.Update(0, func(uint8) uint8 { return 1 }) }
	wake := func(x *Exec) { x.Wake(0, n) }
	post := line(set, wake)
	if wakeFirst {
		post = line(wake, set)
	}
	wait := func(x *Exec) {
		switch x.PC() {
		case 0, 1:
			x.Goto(1)
			if x.Load(0) != 0 {
				x.Goto(3)
				return
			}
			x.Goto(2)
		case 2:
			x.Sleep(1, 0, Wait{Word: 0, Value: 0})
		default:
			x.Disable()
		}
	}
	return System{
		Threads: []ThreadSpec{
			{Name: "poster", Run: post},
			{Name: "waiter", Process: 1, Run: wait},
			{Name: "other", Process: 2, Run: wait},
		},
		Check: func(*Sys) error { return nil },
	}
}

func (y *System) explore(done func(*Sys) bool) Result {
	first := Sys{}
	for i := len(y.Threads); i < Threads; i++ {
		first.Thread[i].Run = Halted
	}
	// In these tests, a thread at step 0 is not idle, so its steps are not optional.
	next := func(s *Sys, emit func(Step[Sys])) {
		(&stepper{System: y}).next(s, func(step Step[Sys]) {
			step.Optional = step.Optional && (step.Label == "wakes for no reason" || step.Label == "is killed")
			emit(step)
		})
	}
	spec := Spec[Sys]{Init: []Sys{first}, Next: next, Check: y.Check, Done: done}
	return spec.Explore()
}

func TestFutex(t *testing.T) {
	done := ended(2, 3, 3)
	good := waker(false, All)
	require.Nil(t, good.explore(done).Violation)

	for name, bad := range map[string]struct {
		System
		steps int
	}{
		// In the first system, a waiter falls asleep between the wake and the store. In the second system, two
		// waiters sleep, and only one of them is woken.
		"wake before the store": {waker(true, All), 5},
		"one wake for two":      {waker(false, 1), 7},
	} {
		v := bad.explore(done).Violation
		require.ErrorIs(t, v, ErrStuck, name)
		require.Len(t, v.Trace, 1+bad.steps, "%s: not the shortest trace:\n%v", name, v)
		bad.Spurious = true
		require.NotNil(t, bad.explore(done).Violation, "%s: a spurious wake is nothing to rely on", name)
	}
}

func TestWakeIsInOrder(t *testing.T) {
	s := Sys{}
	s.sleep(2, 1, 7, 0)
	s.sleep(0, 1|2, 8, 0)
	s.sleep(1, 2, 9, 0)
	require.Equal(t, 1, s.wake(1, 1))
	require.Equal(t, Running, s.Thread[0].Run)
	require.Equal(t, uint8(8), s.Thread[0].PC)
	require.True(t, s.Asleep(2, 0) && s.Asleep(1, 1))
	require.Equal(t, [Threads]uint8{3, 2}, s.queue)
	require.Equal(t, 1, s.wake(0, All))
	s.halt(1)
	require.Equal(t, [Threads]uint8{}, s.queue)
}

// TestEndless checks that a loop without a way out is a violation, and that a loop that a thread can leave by chance
// is not.
func TestEndless(t *testing.T) {
	count := func(out bool) Result {
		spec := Spec[int]{
			Init: []int{0},
			Next: func(s *int, emit func(Step[int])) {
				switch *s {
				case 3:
				case 2:
					emit(Step[int]{To: 1})
					if out {
						emit(Step[int]{To: 3})
					}
				default:
					emit(Step[int]{To: *s + 1})
				}
				emit(Step[int]{To: 3, Optional: true})
			},
			Check: func(*int) error { return nil },
			Done:  func(s *int) bool { return *s == 3 },
		}
		return spec.Explore()
	}
	require.Nil(t, count(true).Violation)
	r := count(false)
	require.ErrorIs(t, r.Violation, ErrEndless)
	require.Len(t, r.Violation.Trace, 1)
	require.Equal(t, 4, r.States)
}

func TestCheckAndLimit(t *testing.T) {
	broken := errors.New("broken")
	spec := Spec[int]{
		Init: []int{0},
		Next: func(s *int, emit func(Step[int])) { emit(Step[int]{To: *s + 1, By: "it", Label: "counts"}) },
		Check: func(s *int) error {
			if *s == 20000 {
				return broken
			}
			return nil
		},
		Done: func(*int) bool { return true },
		Show: func(s *int) string { return fmt.Sprint(*s) },
	}
	r := spec.Explore()
	require.ErrorIs(t, r.Violation, broken)
	require.Len(t, r.Violation.Trace, 20001)
	require.Contains(t, r.Violation.Error(), "it: counts")
	spec.Limit = 100
	require.ErrorIs(t, spec.Explore().Violation, ErrTooMany)
}

// TestKill checks that a killed process executes no step after another process has executed a membarrier, and that
// its earlier stores are in memory then. Without the membarrier, or if the killed process is not registered for it,
// the killed process may execute further steps.
func TestKill(t *testing.T) {
	late := func(barrier, unregistered bool) (after bool) {
		const memory, reaped, mark = 0, 1, 2
		y := System{
			Threads: []ThreadSpec{
				{Name: "dying", Mortal: true, Unregistered: unregistered, Run: line(store(memory, 1), store(memory, 2))},
				{Name: "burier", Process: 1, Run: line(
					func(x *Exec) {
						if x.LifeOf(0) == Alive {
							x.Disable()
						}
						if barrier {
							x.Membarrier()
						}
					},
					func(x *Exec) { x.Update(mark, func(uint8) uint8 { return x.Mem[memory] + 1 }) },
				)},
			},
			Kills: 1,
			Check: func(s *Sys) error {
				after = after || s.Mem[mark] != 0 && s.Mem[memory] != s.Mem[mark]-1
				return nil
			},
		}
		y.explore(func(*Sys) bool { return true })
		return after
	}
	require.False(t, late(true, false))
	require.True(t, late(false, false))
	require.True(t, late(true, true))
}

// TestStatesHaveNoPadding checks that Sys has no padding, because Go hashes and compares a struct without padding as
// one block of memory.
func TestStatesHaveNoPadding(t *testing.T) {
	var padding func(reflect.Type) uintptr
	padding = func(typ reflect.Type) (n uintptr) {
		switch typ.Kind() {
		case reflect.Array:
			return uintptr(typ.Len()) * padding(typ.Elem())
		case reflect.Struct:
			n = typ.Size()
			for i := range typ.NumField() {
				field := typ.Field(i).Type
				n -= field.Size() - padding(field)
			}
		}
		return n
	}
	require.Zero(t, padding(reflect.TypeFor[Sys]()))
}
