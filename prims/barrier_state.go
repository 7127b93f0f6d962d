package prims

import (
	"fmt"
	"math"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// mine returns this participant's share. The queue lock is held.
func (x *Barrier) mine() *barrierShare {
	h := x.shares[x.name.Slot()-1]
	if h.name.Load() != uint64(x.name) {
		x.lose(h)
		storeWord(&h.parties, 0) // nothing is left of the slot's previous participant
		storeWord(&h.left, 0)
		storeWord(&h.name, uint64(x.name))
	}
	return h
}

// in is how many parties a share has in a phase, and how many of their arrivals are to come.
func (h *barrierShare) in(phase uint64) (parties, left uint64) {
	parties, left = h.parties.Load(), h.left.Load()
	switch h.phase.Load() {
	case phase:
		return parties, left
	case phase - 1:
		parties -= min(left, parties) // other processes arrived instead
		return parties, parties
	}
	return 0, 0
}

// set adds the state of a share in this phase to a change.
func (h *barrierShare) set(c *change, phase, parties, left uint64) {
	c.set(&h.phase, phase)
	c.set(&h.parties, parties)
	c.set(&h.left, left)
}

// isBroken reports whether this phase is broken.
func (x *Barrier) isBroken() bool {
	b := x.words.broken.Load()
	return b != 0 && b-1 <= x.words.phase.Load()
}

// lose breaks the phase that the dead participant of a share leaves incomplete: this phase, or
// the next.
func (x *Barrier) lose(h *barrierShare) {
	phase := x.words.phase.Load()
	parties, left := h.in(phase)
	switch {
	case left > 0 && x.words.completer.Load() == 0:
	case parties > left:
		phase++
	default:
		return
	}
	x.breakPhase(phase, h.name.Load(), h)
}

// breakPhase marks a phase, and all later ones, as broken by a death. If h is not nil, its
// participant died and its parties are lost. If h is nil, the process that ran the completion
// died.
func (x *Barrier) breakPhase(phase, name uint64, h *barrierShare) {
	w := x.words
	var c change
	if b := w.broken.Load(); b == 0 || phase < b-1 {
		c.set(&w.broken, phase+1)
		c.set(&w.dead, name)
	}
	if h == nil {
		c.set(&w.completer, 0)
		x.mon.commit(&c)
		return
	}
	parties, _ := h.in(w.phase.Load())
	c.set(&h.parties, 0)
	c.set(&h.left, 0)
	c.set(&w.lost, w.lost.Load()+parties)
	for i := range w.gone {
		if g := &w.gone[i]; g.Load() == 0 {
			c.set(g, lostParties(name, parties))
			break
		}
	}
	x.mon.commit(&c)
}

// begin ends a broken phase and begins another one. If this process dies during begin, the
// Barrier stays broken until the last change is made.
func (x *Barrier) begin(parties uint64) {
	w := x.words
	phase := w.phase.Load()
	if parties == 0 {
		parties = x.left()
	}
	x.remember(phase)
	crashpoint.Hit("barrier.reset.remembered")
	for _, h := range x.shares {
		if n, _ := h.in(phase); n > 0 {
			var c change
			h.set(&c, phase, n, 0) // as if this process had arrived: it is a party of the next phase
			x.mon.commit(&c)
		}
	}
	for i := range w.gone {
		storeWord(&w.gone[i], 0)
	}
	var c change
	c.set(&w.phase, phase+1)
	c.set(&w.expected, parties)
	c.set(&w.pending, parties)
	c.set(&w.broken, 0)
	c.set(&w.lost, 0)
	c.set(&w.completer, 0)
	x.mon.commit(&c)
}

// leave removes n parties from this process and from the Barrier.
func (x *Barrier) leave(n uint64) {
	w, h := x.words, x.mine()
	phase := w.phase.Load()
	parties, left := h.in(phase)
	parties -= min(n, parties)
	var c change
	c.set(&w.expected, w.expected.Load()-min(n, w.expected.Load()))
	h.set(&c, phase, parties, min(parties, left))
	x.mon.commit(&c)
}

// resolve ends the waits whose phase is over or broken. All waits are for the same phase.
func (x *Barrier) resolve(b *wakes) {
	for w, ok := x.fifo.head(); ok; w, ok = x.fifo.head() {
		end, name, over := x.verdict(w.Wanted().Load())
		switch {
		case !x.mon.waiting(w):
			x.fifo.detach(w)
			x.mon.releaseNode(w)
		case !over:
			return
		default:
			if x.mon.end(b, w, uint32(end), name) {
				x.account(w)
			}
		}
	}
}

func (x *Barrier) account(w wait)           { x.mon.account(w, nil) }
func (x *Barrier) detach(w wait)            { x.fifo.detach(w) }
func (x *Barrier) requeue(w wait)           { x.fifo.requeue(w) }
func (x *Barrier) each(f func(w wait) bool) { x.fifo.each(f) }
func (x *Barrier) clear()                   { x.fifo.clear() }

func (x *Barrier) reap(gone func(arenakernel.ParticipantID) bool) {
	if c := x.words.completer.Load(); gone(arenakernel.ParticipantID(c & arenakernel.ParticipantIDMask)) {
		x.breakPhase(x.words.phase.Load(), c, nil)
	}
	for _, h := range x.shares {
		if gone(arenakernel.ParticipantID(h.name.Load() & arenakernel.ParticipantIDMask)) {
			x.lose(h)
		}
	}
}

func (x *Barrier) holders(f func(arenakernel.ParticipantID)) {
	phase := x.words.phase.Load()
	f(arenakernel.ParticipantID(x.words.completer.Load() & arenakernel.ParticipantIDMask))
	for _, h := range x.shares {
		if parties, _ := h.in(phase); parties > 0 {
			f(arenakernel.ParticipantID(h.name.Load() & arenakernel.ParticipantIDMask))
		}
	}
}

// BarrierState is the result of State.
type BarrierState struct {
	Phase     BarrierPhase      // the number of this phase
	Pending   int64             // arrivals that this phase still takes
	Expected  int64             // arrivals that the next one takes
	Own       int64             // how many of the parties belong to this process
	Waiting   bool              // there are waiters
	Completer *shmsync.Identity // the process that runs the completion, or nil
	Err       error             // why waits fail: nil or ErrOwnerDead
	Who       *shmsync.Identity // the process whose death that is; nil if it is not known any more
	// Lost is how many of the parties died since the Barrier was created or reset. It may
	// be positive while Err is nil: then the next phase is broken.
	Lost int64
	Dead []shmsync.Identity // the processes that those parties were, as far as known
}

// State reads x without locking it. The answer may be out of date when it returns.
func (x *Barrier) State() BarrierState {
	x.mon.opening.use()
	w := x.words
	st := BarrierState{
		Phase: BarrierPhase(w.phase.Load()), Pending: signed(w.pending.Load()), Expected: signed(w.expected.Load()), Waiting: !x.fifo.empty(), Lost: signed(w.lost.Load()),
	}
	for i := range w.gone {
		if who := x.a.Who(nameLost(w.gone[i].Load())); who != nil {
			st.Dead = append(st.Dead, *who)
		}
	}
	if h := x.shares[x.name.Slot()-1]; h.name.Load() == uint64(x.name) {
		parties, _ := h.in(w.phase.Load())
		st.Own = signed(parties)
	}
	if n := arenakernel.ParticipantID(w.completer.Load() & arenakernel.ParticipantIDMask); n != 0 {
		st.Completer = x.a.Who(n)
	}
	if x.isBroken() {
		st.Err, st.Who = shmsync.ErrOwnerDead, x.a.Who(arenakernel.ParticipantID(w.dead.Load()&arenakernel.ParticipantIDMask))
	}
	return st
}

func signed(v uint64) int64 { return int64(min(v, math.MaxInt64)) }

// String renders the state on one line.
func (x *Barrier) String() string {
	x.mon.opening.use()
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
