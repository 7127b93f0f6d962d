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
		Kind: signalKind, Version: signalVersion, Repair: repairSignals, Wake: wakeSignals, Check: checkSignals, Inspect: inspectSignals,
	})
}

// repairSignals frees the reservations of the participant dead, schedules the queues that this participant
// executed, and repairs the index from the gates. Several processes may do each step at the same time, or a
// step may be repeated. That is harmless: a worker clears a bit that was set needlessly, and a needless
// permit costs one search.
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
	// The dead process may have taken a permit and not acted on it. Or it may have set a bit in a leaf without
	// a call of MarkPartitionLeafActive. The owner of the leaf checks its leaves when it wakes up.
	least := 0
	if b := v.wakeWakeWord(); b.Announced() || v.sleepers() > 0 {
		least = 1
	}
	v.restock(least)
}

// reapGate schedules the queue again if its executor is dead and gone, as the function gone
// reports. It also sets the index bits of a queue that is scheduled.
func (v *signalView) reapGate(q int, gone func(arenakernel.ParticipantID) bool) {
	gate := &v.gates[q].word
	for {
		// The CAS fails only if another call has changed the gate, so the loop is lock-free.
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
			// The producer, or the worker that acquired the bit, has not finished its step, or is dead. So set
			// the bit in its place.
			v.publish(q)
		}
		return
	}
}

// reapIndex sets the summary bits of signals that have bits, and the tasks bit of a partition
// that has leaves.
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

// reapTask frees a queue that dead had reserved, and clears the bit of a queue that nobody has
// reserved.
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

// wakeSignals makes the wakes that a dead process may not have made.
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
