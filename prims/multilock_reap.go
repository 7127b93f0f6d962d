package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: multiLockKind, Version: multiLockVersion, Repair: repairMultiLock, Complete: completeMultiLock, Wake: wakeMultiLock,
		Check: checkMultiLock, Inspect: inspectMultiLock,
	})
}

// repairMultiLock takes back the keys and removes the waits of the dead participant. Before that it completes the
// records of all participants, because a record of the dead participant may concern a bucket that the method busy
// would skip.
//
// The buckets are not those of an open handle, so their field unreaped is lost. If the reap gives up a key, the next
// call for the key, or the next periodic check of a waiter for the key, finds the dead holder itself; see tryLock and
// hasDead.
func repairMultiLock(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) bool {
	x, err := buildMultiLock(a, o, true)
	if err != nil {
		return false
	}
	completeRecords(x)
	done := true
	x.busy(func(k *multiBucket) {
		done = k.repairBare(dead, bareRepair{reap: k.reapAll, owes: k.takeOpen, makeRecord: x.slots.makeRecord}) && done
	})
	return done
}

// completeMultiLock completes the last change of each participant, if the participant has not completed it. It
// returns false if it could not complete all of them, because words of the MultiLock are damaged or cannot be read.
func completeMultiLock(a *arenakernel.Arena, o arenakernel.Object) bool {
	x, err := buildMultiLock(a, o, true)
	return err == nil && completeRecords(x)
}

// completeRecords completes the last change of each participant, and reports whether it succeeded. The head of a slot
// record names the bucket of the change.
func completeRecords(x *MultiLock) bool {
	all := x.slots.load()
	ok := all.err == nil
	for _, r := range all.all {
		i := r.words.head.Load() >> recordPartShift
		ok = ok && i < uint64(len(x.all))
		if i < uint64(len(x.all)) {
			k := x.bucketAt(int(i))
			done := k.completeBare()
			ok = ok && done
		}
	}
	return ok
}

// wakeMultiLock wakes, for each key, the owners of the first waits in the queue. It does so only if this process could
// not make a record, and so could not reap the MultiLock. One of the woken processes then reaps.
func wakeMultiLock(a *arenakernel.Arena, o arenakernel.Object, _ arenakernel.Owed) {
	x, err := buildMultiLock(a, o, true)
	if err != nil {
		return
	}
	x.busy(func(k *multiBucket) {
		k.private.Lock()
		defer k.private.Unlock()
		for i := range k.size() {
			k.focus(i)
			k.wakeBare()
		}
	})
}

// busy calls f for the buckets in which a key may be held, granted or waited for.
func (x *MultiLock) busy(f func(k *multiBucket)) {
	x.findBlocks() // makes the buckets that have blocks; after an error, the other blocks are left out
	for i := range x.all {
		if x.all[i].Load() != nil || !arenakernel.At[multiLockBucket](x.a, multiBucketAt(x.object, i)).quiet() {
			if k := x.bucketAt(i); k != nil { // nil if the handle has ended meanwhile
				f(k)
			}
		}
	}
}

// quiet reports whether no key that has an entry in the memory of the bucket itself is held, granted or waited for.
func (w *multiLockBucket) quiet() bool {
	for i := range uint32(multiInline) {
		if e := w.inline(i); !e.state().free() || valueIn(&e.first) != 0 {
			return false
		}
	}
	return true
}

// queued returns the indices of the entries that have a queue. It searches the bucket only if the commit word has
// changed since the last call, because only records change the ends of a queue. The caller holds k.private.
func (k *multiBucket) queued(x *recordedChange, b *wakes) ([]uint32, error) {
	if err := k.begin(x, b); err != nil || k.queuedSeen && k.queuedAt == x.c {
		return k.queuedKeys, err
	}
	k.queuedKeys = k.queuedKeys[:0]
	for i := range k.size() {
		if valueIn(&k.at(i).first) != 0 {
			k.queuedKeys = append(k.queuedKeys, i)
		}
	}
	k.queuedAt, k.queuedSeen = x.c, k.load() == x.c
	return k.queuedKeys, nil
}

// hasDead reports whether a participant that is marked dead holds the key of one of these entries, or was granted
// it.
func (k *multiBucket) hasDead(entries []uint32) bool {
	alive := arenakernel.ParticipantID(0) // many keys may have the same holder
	for _, i := range entries {
		if n := k.at(i).state().holder(); n != alive {
			if n != 0 && k.a.Dead(n) {
				return true
			}
			alive = n
		}
	}
	return false
}

// reapAll reaps, and then serves the queues of all keys of the bucket.
func (k *multiBucket) reapAll(x *recordedChange, b *wakes) {
	k.reap(x, b)
	k.serveAll(x, b)
}

// serveAll serves the queues of all keys of the bucket. If the queue of one key is damaged, or other processes change
// the bucket all the time while serveAll serves that queue, it goes on with the other keys.
func (k *multiBucket) serveAll(x *recordedChange, b *wakes) error {
	if err := k.begin(x, b); err != nil {
		return err
	}
	for i := range k.size() {
		if valueIn(&k.at(i).first) != 0 {
			k.focus(i)
			k.serve(x, b)
		}
	}
	return nil
}

// reap takes the waits of dead participants off the queues of all keys of the bucket, and then takes the keys of
// dead participants back, as the policy says. reap makes the change in x, and adds the wakes that the change
// requires to b. If other processes change the bucket all the time, reap may give up one key. It then goes on with the
// next key, and k.unreaped is set. The caller holds k.private.
func (k *multiBucket) reap(x *recordedChange, b *wakes) error {
	k.deaths.Store(k.a.Deaths())
	k.unreaped.Store(false)
	// The last change of the dead participant may have put a wait on a queue. The method begin completes that change.
	if err := k.begin(x, b); err != nil {
		return err
	}
	err := k.of.findBlocks() // after an error, reap goes on with the blocks that this handle knows
	// If a peer has overwritten the queue of one key, reap goes on with the other keys. The calls for this key find
	// the damage themselves.
	for i := range k.size() {
		if e := k.at(i); valueIn(&e.first) != 0 {
			k.focus(i)
			k.removeDead(x, b)
		}
	}
	for i := range k.size() {
		if k.absent(k.at(i).state().holder()) {
			k.focus(i)
			k.takeBack(x, b)
		}
	}
	return err
}

// takeOpen takes a key back from a dead holder if the hold word of the key is open. It does so for all keys of the
// bucket. It reports whether a dead participant has left something that only a record can recover; see takeOpenBack and
// unserved.
func (k *multiBucket) takeOpen(x *recordedChange, b *wakes) (needsRecord bool) {
	for i := range k.size() {
		k.focus(i)
		needsRecord = k.takeOpenBack() || k.unserved(x, b) || needsRecord
	}
	return needsRecord
}

// check is called ten times a second while a goroutine of this process waits. It completes the changes that a dead or
// a stopped process has left undone, in the buckets in which goroutines of this process wait.
func (x *MultiLock) check() {
	for i := range x.all {
		if k := x.all[i].Load(); k != nil && k.waits.Load() > 0 {
			k.check()
		}
	}
}

// check does what MultiLock.check does, for one bucket. A bucket may have thousands of keys that are held, so check
// looks only at keys that a goroutine of some process waits for. A call that arrives at another key looks at the holder
// of that key itself. check also stores the present time in the first wait for each key, for tools; see dateFirst.
func (k *multiBucket) check() {
	b := takeWakes()
	defer k.wake(b)
	k.private.Lock()
	defer k.private.Unlock()
	x := &k.scratch
	// The process that marked the holder dead may have been stopped before it counted the death. So it is not
	// enough to compare the count of deaths.
	entries, _ := k.queued(x, b)
	if k.reapDue() || k.hasDead(entries) {
		k.reap(x, b)
		entries, _ = k.queued(x, b)
	}
	for _, i := range entries {
		k.focus(i)
		k.serve(x, b)
		if valueIn(k.first) != 0 {
			k.dateFirst()
		}
	}
}

// torn reports whether a peer has damaged the queue of a key, so that a wait of this process may never end; see isTorn.
func (x *MultiLock) torn(s *park.WaitNode) bool {
	k := x.all[x.index(s.Node.Wanted().Load())].Load()
	return k == nil || k.isTorn(s, k.focusKnown, k.serve)
}

// focusKnown does what focusOn does, but looks among the known entries first. So if the list of blocks is damaged,
// a wait for a key whose entry is known goes on.
func (k *multiBucket) focusKnown(x *recordedChange, key uint64) (ok bool, err error) {
	i, ok := k.search(key)
	if !ok {
		return k.focusOn(x, key)
	}
	k.focus(i)
	return true, nil
}

func checkMultiLock(a *arenakernel.Arena, o arenakernel.Object) error {
	x, err := buildMultiLock(a, o, true)
	if err != nil {
		return err
	}
	if err := x.findBlocks(); err != nil {
		return err
	}
	x.busy(func(k *multiBucket) {
		for j := range k.size() {
			// While a free entry gets another key, it may have one half of the old key and one half of the new key.
			if _, s, key := k.at(j).read(); !s.valid() || !s.free() && x.index(key) != k.number {
				err = x.fail("multilock.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("bucket %d: key %d is %v", k.number, key, s))
			}
		}
	})
	return err
}
