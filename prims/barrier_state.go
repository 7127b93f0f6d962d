package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
)

// BarrierState is the result of State.
type BarrierState struct {
	Phase     BarrierPhase      // the number of this phase
	Pending   int64             // arrivals that this phase still takes
	Expected  int64             // arrivals that the next phase takes
	Own       int64             // how many of the parties belong to this process
	Waiting   bool              // there are waiters
	Completer *shmsync.Identity // the process that runs the completion, or nil
	Err       error             // why waits fail: nil or ErrOwnerDead
	Who       *shmsync.Identity // the process that died; nil if it is no longer known
	// Lost is how many of the parties have died since the Barrier was created or reset. Lost may be
	// positive while Err is nil: then the next phase will be broken.
	Lost int64
	Dead []shmsync.Identity // the processes to which the lost parties belonged, as far as they are known
}

// State reads x without changing it. The answer may be out of date when it returns.
func (x *Barrier) State() BarrierState {
	x.opening.use()
	s, shares, err := x.seen()
	if err != nil {
		return BarrierState{Err: err}
	}
	st := BarrierState{
		Phase: BarrierPhase(s.phase), Pending: int64(s.pending), Expected: int64(s.expected), Lost: int64(s.lost),
		Waiting: x.eventcount.load().announced() && len(x.a.WaitsOf(x.object)) > 0,
	}
	for i := range shares {
		h := &shares[i]
		if h.gone != 0 && h.goneIn == uint64(uint32(s.reset)) && s.lost > 0 {
			if who := x.a.Who(h.gone); who != nil {
				st.Dead = append(st.Dead, *who)
			}
		}
		if h.name == x.name {
			parties, _ := s.in(h)
			st.Own = int64(parties)
		}
	}
	if s.completer != 0 {
		st.Completer = x.a.Who(s.completer)
	}
	if s.isBroken() {
		st.Err, st.Who = shmsync.ErrOwnerDead, x.a.Who(s.broken.dead())
	}
	return st
}

// String renders the state on one line.
func (x *Barrier) String() string {
	st := x.State()
	s := fmt.Sprintf("barrier %s: phase %d, %d of %d to arrive, %d of this process, waiting %v",
		objectName(x.object), st.Phase, st.Pending, st.Expected, st.Own, st.Waiting)
	if st.Completer != nil {
		s += fmt.Sprintf(", %v completes it", st.Completer)
	}
	if st.Err != nil {
		s += fmt.Sprintf(", %v, %d parties lost", st.Err, st.Lost)
	}
	return s
}
