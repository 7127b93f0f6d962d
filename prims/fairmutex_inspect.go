package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

func inspectFairMutex(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	if o.Size < fairMutexBytes(a) {
		return unreadable(a, o, nil)
	}
	f, err := buildFairMutex(a, o, &FairMutexOptions{}, true)
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	i.Policy = f.policy.String()
	v, word := f.seen()
	i.State = word.String()
	i.Counts, i.Spin = f.counts.tell(), spinText(f.words.spin.Load())
	on := i.ownerState(uint64(v), word, f.diedName())
	i.date(on, f.counts)
	i.dateByStamp(on)
	i.waits(inQueue, "lock", on)
	return i.Inspection
}
