package stopstorm

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/shmsync/shmsync/internal/stepkill"
)

// mostSteps is the largest number of instructions that are stepped through in one operation.
const mostSteps = 20_000

// operationsMost is the largest number of further operations that are stepped through. More operations are needed if
// there were too few stops, for example because only the first operation was a long one.
const operationsMost = 100

// stepAll steps through one operation of each kind that the workload of a primitive has.
func stepAll(ctx context.Context, o *Options, t target, d *Document) error {
	for k := 1; ; k++ {
		s, err := newStorm(ctx, o, t, k)
		if err != nil {
			return err
		}
		last := k == len(s.lanes)
		s.res.Lane = s.lanes[k-1].name
		err = s.step()
		s.end()
		s.finish(d)
		if err != nil || last {
			return err
		}
	}
}

// step steps through one operation of worker 0 to count its instructions. Then it stops the worker at instructions of
// the next operations.
func (s *storm) step() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	t, err := stepkill.Seize(s.procs[0].pid(), int(s.procs[0].page.tid.Load()))
	if err != nil {
		return err
	}
	defer t.Kill()
	if err := s.operation(t, 1, func() error { s.res.Steps++; return nil }); err != nil {
		return err
	}
	stride := max(s.o.Every, (s.res.Steps+s.o.Stops-1)/s.o.Stops)
	n := s.r.IntN(stride)
	ended := func(number uint32) bool { return s.procs[0].page.ended.Load() >= number }
	first := uint32(1) // if operation 1 has not ended yet, the stops are in its remaining instructions
	if ended(first) {
		first++
	}
	most := first // a stop after each instruction needs only one operation
	if stride > 1 {
		most += operationsMost
	}
	for number := first; number <= most && s.res.Stops < s.o.Stops; number++ {
		err := s.operation(t, number, func() error {
			if n++; n%stride != 0 || s.res.Stops >= s.o.Stops {
				return nil
			}
			return s.stepStop(t)
		})
		if err != nil || !ended(number) {
			return err
		}
	}
	return nil
}

// operation steps the thread through the operation with this number, and calls f after each instruction.
func (s *storm) operation(t *stepkill.Tracer, number uint32, f func() error) error {
	p := s.procs[0].page
	p.gate.Store(number)
	for n := 0; p.ended.Load() < number && n < mostSteps; n++ {
		state, err := t.Step()
		for state == stepkill.Asleep && err == nil {
			// The thread sleeps in the kernel. A stop here would test nothing new, because the thread holds what it
			// held after the previous instruction. It continues when other threads wake it.
			state, err = t.Wait(time.Millisecond)
			if serr := s.sound(); serr != nil {
				return serr
			}
		}
		if err != nil || state != stepkill.Stopped {
			return s.lost(t, state, err)
		}
		if p.began.Load() < number {
			continue
		}
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// stepStop watches the other workers while the stepped thread is stopped after an instruction.
func (s *storm) stepStop(t *stepkill.Tracer) error {
	w := s.watchOthers(0)
	for {
		nap(50 * time.Microsecond)
		if w.sample(); w.moved(1) {
			break
		}
		if still := w.still(s.o.Bound); len(still) != 0 {
			s.judge(0, still, func() string { return s.stoodAt(t) })
			break
		}
		if still := w.still(s.o.Bound / excuseAfter); len(still) != 0 && s.excused(0, still) {
			break
		}
		if err := s.sound(); err != nil {
			return err
		}
	}
	s.observed.gaps = append(s.observed.gaps, w.gap)
	s.res.Stops++
	return nil
}

func (s *storm) lost(t *stepkill.Tracer, state stepkill.State, err error) error {
	if err := s.sound(); err != nil {
		return err
	}
	return fmt.Errorf("%s: the stepped thread is in state %d: %s: %w", s.prim.name, state, t.End(), err)
}

// stoodAt says where in the code the stepped thread is.
func (s *storm) stoodAt(t *stepkill.Tracer) string {
	place := s.standing(0)
	if i := strings.Index(place, "; "); i >= 0 {
		place = place[:i]
	}
	return place
}
