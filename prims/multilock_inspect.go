package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func inspectMultiLock(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	x, err := buildMultiLock(a, o, true)
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	i.Policy = x.policy.String()
	holds, stamps, lost := map[uint64][]int{}, map[uint64]uint32{}, 0
	tell := func(e keyEntry) {
		h, key := e.hold(), e.key.Load()
		if h == 0 {
			return
		}
		i.word(fmt.Sprintf("key %d", key), uint64(h), "%v", h)
		if h.free() {
			return
		}
		hold := ownerHold(h.owner())
		if h.granted() {
			hold.Owner, hold.Mode = h.owner().participant(), arenakernel.HoldReserved
		}
		if hold.Owner != 0 && h.valid() {
			hold.Key = &key
			holds[key], stamps[key] = i.hold(hold), h.stamp()
			return
		}
		lost++
		if lost > 1 {
			return // the state counts all lost keys, but describes only the first, with which a recovery can begin
		}
		i.Key = &key
		died, err := e.lost()
		i.lost(err, died)
	}
	for n := range x.all {
		k := x.bucketOr(n)
		if a.Counted() {
			i.sum(k.words.mon.queueLock.counts.tell())
		}
		if k.words.quiet() {
			continue
		}
		i.queueLock(multiBucketAt(o, n)-o.Body, k.words.mon.places())
		i.Spin = spinText(k.words.mon.spin.Load())
		for j := range k.words.entries {
			tell(inlineEntry(&k.words.entries[j]))
		}
		k.peekSpilled(tell)
	}
	i.State = fmt.Sprintf("%d keys held", len(holds))
	if lost > 0 {
		i.State += fmt.Sprintf(", %d that nobody can have", lost)
	}
	dated := map[uint64]bool{}
	for k := range i.Waits {
		w := &i.Waits[k]
		if w.Want == nil || dated[*w.Want] {
			continue
		}
		// The tool has read the node of the wait first. If the hold is in a node too, that node may have changed
		// since then. So the stamps have to show that the wait came after the hold.
		if on := holds[*w.Want]; len(on) > 0 && int32(uint32(w.Stamp)-stamps[*w.Want]) > 0 {
			dated[*w.Want] = i.dateBy(w, on)
		}
	}
	for k := range i.Waits {
		if w := &i.Waits[k]; w.For == "" && w.Want != nil {
			w.For, w.On = "key", holds[*w.Want]
		}
	}
	return i.Inspection
}

// lost returns the error that a call gets that tries to lock the key, and the participant whose death caused the
// error. The error is nil if a process has the key or can get it.
func (e keyEntry) lost() (arenakernel.ParticipantID, error) {
	h := e.hold()
	if h == 0 || h.free() || h.valid() && ownerHold(h.owner()).Owner != 0 || h.granted() && h.valid() {
		return 0, nil
	}
	switch result, _ := h.result(); result {
	case lockOwnerDead:
		return h.died(), shmsync.ErrOwnerDead
	case lockNotRecoverable:
		return h.died(), shmsync.ErrNotRecoverable
	}
	return 0, shmsync.ErrCorrupt
}

// eachEntry calls f for the records of the keys in all buckets. It does not take the queue locks.
func (x *MultiLock) eachEntry(f func(e keyEntry)) {
	for n := range x.all {
		k := x.bucketOr(n)
		if k.words.quiet() {
			continue
		}
		for j := range k.words.entries {
			f(inlineEntry(&k.words.entries[j]))
		}
		k.peekSpilled(f)
	}
}
