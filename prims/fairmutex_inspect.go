package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

func inspectFairMutex(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	if o.Size < uint64(fairMutexBytes) {
		return unreadable(a, o, nil)
	}
	f := buildFairMutex(a, o, &FairMutexOptions{}, true)
	i := inspect(a, o)
	i.Policy = f.policy.String()
	word := f.ownerWord()
	i.State = word.String()
	on := i.owner(word, f.diedName())
	i.monitor(f.words.mon.places())
	i.date(on, f.mon.counts)
	i.dateByFirst(on)
	i.waits(inQueue, "lock", on)
	return i.Inspection
}
