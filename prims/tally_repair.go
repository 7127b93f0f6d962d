package prims

import (
	"fmt"
	"strings"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
)

func repairTally(a *arena.Arena, o arena.Object, dead arena.Name) {
	if o.Size >= tallyBytes(a.MaxParticipants()) {
		repairMonitor(buildTally(a, o, "", true).mon, dead)
	}
}

func checkTally(a *arena.Arena, o arena.Object) error {
	if o.Size < tallyBytes(a.MaxParticipants()) {
		return wrongKind("tally.check", o, o.Kind, tallyVersion)
	}
	t := buildTally(a, o, "", true)
	if err := checkMutexWords(o, &t.words.mon.latch); err != nil {
		return err
	}
	if n := t.count(); n < 0 {
		return t.mon.fail("tally.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("its counter is %d", n))
	}
	return nil
}

func describeTally(a *arena.Arena, o arena.Object) string {
	if o.Size < tallyBytes(a.MaxParticipants()) {
		return "too small"
	}
	t := buildTally(a, o, "", true)
	w := t.words
	var b strings.Builder
	fmt.Fprintf(&b, "counter %d, others %d, epoch %d", t.count(), int64(w.others.Load()), w.epoch.Load())
	if owed := w.owed.Load(); owed > 0 {
		fmt.Fprintf(&b, ", %v died and owes %d", arena.Name(w.dead.Load()&arena.NameMask), owed)
	}
	for _, h := range t.shares {
		if n := t.has(h); n > 0 {
			fmt.Fprintf(&b, ", %v has %d", arena.Name(h.name.Load()&arena.NameMask), n)
		}
	}
	b.WriteString(describeMonitor(t.mon))
	return b.String()
}
