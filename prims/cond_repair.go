package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: condKind, Repair: repairCond, Wake: wakeQueue, Check: checkCond, Describe: describeCond, Inspect: inspectCond,
	})
}

func repairCond(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if o.Size >= uint64(condBytes) {
		repairMonitor(buildCond(a, o, true).mon, dead)
	}
}

func checkCond(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < uint64(condBytes) {
		return wrongKind("cond.check", o, condKind, condVersion)
	}
	return checkMutexWords(o, &arenakernel.At[condWords](a, o.Body).mon.queueLock)
}

func describeCond(a *arenakernel.Arena, o arenakernel.Object) string {
	if o.Size < uint64(condBytes) {
		return "too small"
	}
	k := buildCond(a, o, true)
	st := k.state()
	return fmt.Sprintf("%d waiting, %d woken, batch %d, %d of a broadcast up to %d are woken, %d have landed%s",
		st.Waiting, st.Woken, k.limit, k.words.flying.Load(), k.words.upTo.Load(), k.words.landed.Load(), describeMonitor(k.mon))
}

func (k *condCore) state() (st CondState) {
	upTo := k.words.upTo.Load()
	k.a.EachNode(k.object.Offset, func(_ arenakernel.Offset, n *arenakernel.Node) {
		switch w := n.Load(); {
		case w.Over(), queued(w) && n.Stamp().Load() <= upTo:
			st.Woken++
		case queued(w):
			st.Waiting++
		}
	})
	return st
}
