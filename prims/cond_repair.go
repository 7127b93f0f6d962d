package prims

import (
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: condKind, Version: condVersion, Repair: repairCond, Wake: wakeQueue, Check: checkCond, Inspect: inspectCond,
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
