package prims

import (
	"fmt"
	"strings"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func repairCounter(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if o.Size >= counterBytes(a.MaxParticipants()) {
		repairMonitor(buildCounter(a, o, "", true).mon, dead)
	}
}

func checkCounter(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < counterBytes(a.MaxParticipants()) {
		return wrongKind("counter.check", o, o.Kind, counterVersion)
	}
	t := buildCounter(a, o, "", true)
	if err := checkMutexWords(o, &t.words.mon.queueLock); err != nil {
		return err
	}
	if n := t.count(); n < 0 {
		return t.mon.fail("counter.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("its counter is %d", n))
	}
	return nil
}

func describeCounter(a *arenakernel.Arena, o arenakernel.Object) string {
	if o.Size < counterBytes(a.MaxParticipants()) {
		return "too small"
	}
	t := buildCounter(a, o, "", true)
	w := t.words
	var b strings.Builder
	fmt.Fprintf(&b, "counter %d, others %d, epoch %d", t.count(), int64(w.others.Load()), w.epoch.Load())
	if owed := w.owed.Load(); owed > 0 {
		fmt.Fprintf(&b, ", %v died and owes %d", arenakernel.ParticipantID(w.dead.Load()&arenakernel.ParticipantIDMask), owed)
	}
	for _, h := range t.shares {
		if n := t.has(h); n > 0 {
			fmt.Fprintf(&b, ", %v has %d", arenakernel.ParticipantID(h.name.Load()&arenakernel.ParticipantIDMask), n)
		}
	}
	b.WriteString(describeMonitor(t.mon))
	return b.String()
}
