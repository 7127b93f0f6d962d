package prims

import (
	"fmt"
	"strings"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func repairBarrier(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if o.Size >= barrierBytes(a.MaxParticipants()) {
		repairMonitor(buildBarrier(a, o, nil, true).mon, dead)
	}
}

func checkBarrier(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < barrierBytes(a.MaxParticipants()) {
		return wrongKind("barrier.check", o, barrierKind, barrierVersion)
	}
	x := buildBarrier(a, o, nil, true)
	w := x.words
	if err := checkMutexWords(o, &w.mon.queueLock); err != nil {
		return err
	}
	if p, e := int64(w.pending.Load()), int64(w.expected.Load()); p < 0 || e < 0 {
		return x.mon.fail("barrier.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("%d arrivals are to come, %d a phase", p, e))
	}
	return nil
}

func describeBarrier(a *arenakernel.Arena, o arenakernel.Object) string {
	if o.Size < barrierBytes(a.MaxParticipants()) {
		return "too small"
	}
	x := buildBarrier(a, o, nil, true)
	w := x.words
	phase := w.phase.Load()
	var b strings.Builder
	fmt.Fprintf(&b, "phase %d, %d of %d to arrive", phase, w.pending.Load(), w.expected.Load())
	if n := arenakernel.ParticipantID(w.completer.Load() & arenakernel.ParticipantIDMask); n != 0 {
		fmt.Fprintf(&b, ", %v completes it", n)
	}
	if at := w.broken.Load(); at != 0 {
		fmt.Fprintf(&b, ", broken from phase %d by %v", at-1, arenakernel.ParticipantID(w.dead.Load()&arenakernel.ParticipantIDMask))
	}
	if lost := w.lost.Load(); lost > 0 {
		fmt.Fprintf(&b, ", %d parties lost", lost)
	}
	for _, h := range x.shares {
		if parties, left := h.in(phase); parties > 0 {
			fmt.Fprintf(&b, ", %v is %d with %d to come", arenakernel.ParticipantID(h.name.Load()&arenakernel.ParticipantIDMask), parties, left)
		}
	}
	b.WriteString(describeMonitor(x.mon))
	return b.String()
}
