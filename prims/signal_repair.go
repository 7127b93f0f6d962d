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
		Kind: signalKind, Version: signalVersion, Repair: alone(repairSignals), Wake: wakeSignals, Check: checkSignals, Inspect: inspectSignals,
	})
}

// repairSignals recovers what the participant named dead left in a SignalWaker. It ends the reservations of that
// participant, schedules the queues that the participant executed, and repairs the bits of signals and summary from
// the gate words. Several processes may do the same step at the same time, or repeat it. That is harmless, because
// a worker clears a bit that was set needlessly, and a needless permit costs only one search.
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
	// The dead process may have taken a permit and not acted on it. Or it may have set a bit in a signal of another
	// worker's partition, and died before it called MarkPartitionLeafActive. So if a worker sleeps, there has to be at
	// least one permit. The worker that takes the permit checks the signals that it owns.
	least := 0
	if b := v.wakeWakeWord(); b.Announced() || v.sleepers() > 0 {
		least = 1
	}
	v.restock(least)
}

// reapGate schedules the queue q again if the function gone reports that its executor is dead, and that the process of
// the executor has ended. If q is scheduled, reapGate also sets its bit in the signal, and the bit of the signal in the
// summary.
func (v *signalView) reapGate(q int, gone func(arenakernel.ParticipantID) bool) {
	gate := &v.gates[q].word
	for range reapTries {
		// The CAS fails only if another call has changed the gate. Correct peers do not change it so often that all
		// tries fail. If all tries fail because of a damaging peer, the next sweep examines the gate again.
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
			// The producer, or the worker that cleared the bit, has not finished its step, or is dead. So set the
			// bit here.
			v.publish(q)
		}
		return
	}
}

// reapIndex sets the summary bits of signals that have bits, and the tasks bit if the partition summary has bits.
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

// reapTask ends the reservation of queue q if the participant named dead had reserved it. It also clears the bit
// that says that q is reserved, if nobody has reserved q.
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

// wakeSignals makes the wakes that a dead process may not have made. If there are several permits, the dead process may
// have been about to wake as many waiters; see wakeMutex.
func wakeSignals(a *arenakernel.Arena, o arenakernel.Object, owed arenakernel.Owed) {
	v, err := viewSignals(a, o)
	if err != nil {
		return
	}
	switch b := v.wakeWakeWord(); {
	case owed == arenakernel.OwedAll, v.head.permits.Load() > 1:
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
