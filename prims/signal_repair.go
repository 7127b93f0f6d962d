package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("signal.reap.released")
	_ = crashpoint.Register("signal.reap.unreserved")
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: signalKind, Repair: repairSignals, Wake: wakeSignals, Check: checkSignals, Inspect: inspectSignals,
	})
}

// repairSignals takes back what dead had, and makes the index good from the gates. Every
// step may be done by many at once, and may be done too often: a worker that finds a bit
// that is set for nothing clears it, a permit that is too many costs a look.
func repairSignals(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	v, err := viewSignals(a, o)
	if err != nil {
		return
	}
	gone := func(n arenakernel.ParticipantID) bool { return (a.Reaps(dead, n) || !a.Current(n)) && a.Gone(n) }
	for q := range v.gates {
		v.reapGate(q, gone)
		v.reapTask(q, dead)
	}
	v.reapIndex()
	row := &v.rows[dead.Slot()-1]
	if c := row.count.Load(); a.Reaps(dead, signalCount(c).participant()) {
		arenakernel.TakeFromDead(a, signalCount(c).participant(), &row.count, c, 0)
	}
	// The dead may have taken a permit and not acted on it, or have set a bit in some leaf
	// and not told the leaf's owner, which looks when it gets up.
	least := 0
	if b := v.wakeWakeWord(); b.Announced() || v.sleepers() > 0 {
		least = 1
	}
	v.restock(least)
}

// reapGate schedules the queue again if its executor is dead and gone, and sets the bits
// that a scheduled one must have.
func (v *signalView) reapGate(q int, gone func(arenakernel.ParticipantID) bool) {
	gate := &v.gates[q].word
	for {
		// The loop ends: each failure of the CAS is another's success.
		s := signalGateWord(gate.Load())
		switch {
		case s.executing() && gone(s.participant()):
			// sync(signal.finish): release
			if !arenakernel.TakeFromGone(v.a, s.participant(), gate, uint64(s), uint64(s.orphan())) {
				continue
			}
			crashpoint.Hit("signal.reap.released")
			v.publish(q)
		case s.ready() && v.lines[q/signalBits].bits.Load()&(1<<(q%signalBits)) == 0:
			// Its producer, or the worker that acquired the bit, is in between, or is dead.
			v.publish(q)
		}
		return
	}
}

// reapIndex marks the signals that have bits, and the tasks of a partition that
// has leaves.
func (v *signalView) reapIndex() {
	for i := range v.lines {
		if v.lines[i].bits.Load() != 0 {
			v.mark(i)
		}
	}
	if v.head.partition.Load() != 0 {
		v.markStatus(statusTasks)
	}
}

// reapTask frees what dead had reserved, and the bit of what nobody has.
func (v *signalView) reapTask(q int, dead arenakernel.ParticipantID) {
	task, line, m := &v.gates[q].task, &v.lines[q/signalBits], uint64(1)<<(q%signalBits)
	n := task.Load()
	if who := arenakernel.ParticipantID(n & arenakernel.ParticipantIDMask); v.a.Reaps(dead, who) && arenakernel.TakeFromDead(v.a, who, task, n, 0) {
		crashpoint.Hit("signal.reap.unreserved")
		n = 0
	}
	if n == 0 && line.tasks.Load()&m != 0 {
		line.tasks.And(^m)
	}
}

// wakeSignals makes up for a wake that a death swallowed.
func wakeSignals(a *arenakernel.Arena, o arenakernel.Object, owed arenakernel.Owed) {
	v, err := viewSignals(a, o)
	if err != nil {
		return
	}
	switch b := v.wakeWakeWord(); {
	case owed == arenakernel.OwedAll:
		b.WakeAll()
	case owed == arenakernel.OwedOne || b.Announced():
		b.WakeOne()
	}
}

func checkSignals(a *arenakernel.Arena, o arenakernel.Object) error {
	v, err := viewSignals(a, o)
	if err != nil {
		return err
	}
	for q := range v.gates {
		if s := signalGateWord(v.gates[q].word.Load()); !s.valid() {
			return v.fail("signalwaker.check", shmsync.ErrCorrupt, fmt.Sprintf("the gate of queue %d is %#x", q, uint64(s)))
		}
	}
	return nil
}
