package prims

import "github.com/shmsync/shmsync/internal/crashpoint"

// lockFresh locks a key that has no entry, if the bucket has an entry of a free key. It does so in fewer steps than
// lockSlow. In all other cases it locks nothing and returns the zero Hold, and the caller calls lockSlow.
func (k *multiBucket) lockFresh(key uint64) (h Hold) {
	if !k.mayOpen() || !k.queue.Enter() {
		return h
	}
	k.private.Lock()
	// Go on only if this process knows that the last change is complete, and has seen all blocks and all deaths.
	c := k.load()
	if k.completed.Load() == uint64(c) && k.of.known.Load() == k.of.slots.head.Load() && !k.reapDue() {
		h = k.takeVacant(c, key)
	}
	k.private.Unlock()
	k.queue.Exit()
	return h
}

// takeVacant locks a key that has no entry. The key gets the entry of another key, if that other key is free and nobody
// waits for it. If this is impossible, or if the key has an entry, takeVacant returns the zero Hold. The caller has
// found that the record which the commit word c names is complete.
func (k *multiBucket) takeVacant(c recordCommit, key uint64) Hold { // guarded by: private
	if _, found := k.search(key); found {
		return Hold{}
	}
	i, ok := k.vacant(c)
	if !ok {
		return Hold{}
	}
	k.focus(i)
	x := &k.scratch
	x.c, x.n, x.tooMany, x.torn = c, 0, false, false
	k.setKey(x, key)
	was := keyHold(k.entry.hold.Load())
	x.add(multiHold, i, &k.entry.hold, was, k.of.open)
	// If another process has changed the entry since the call of vacant, the commit word has changed, too.
	if ok, _ := k.end(x, nil); !ok {
		return Hold{}
	}
	crashpoint.Hit("multilock.lock.taken")
	k.hint(key, i)
	return makeHold(k, k.entry, key, i, was.tag()+1)
}
