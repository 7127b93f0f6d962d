package prims

import (
	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// accept makes this process the holder of a key, with the hold h. One of its waits was granted the key before. A
// process that dies before it accepts has never held the key.
func (k *multiBucket) accept(key uint64, h keyHold) error {
	granted := makeKeyHold(keyGranted, h.owner().participant(), h.stamp())
	for range acceptTries {
		for i := range k.words.entries {
			// Only this wait has this stamp in the word granted. So an entry with that word is the entry of the
			// key.
			if s := &k.words.entries[i]; s.hold.Load() == uint64(granted) {
				return k.acceptIn(inlineEntry(s), key, granted)
			}
		}
		if k.words.spilled.Load() != 0 {
			break
		}
		asm.Pause(acceptPause)
	}
	// No entry has the grant. Either the record of the key is in a wait node, or the granter has resolved the wait
	// and has not stored the grant yet. The granter may be running, stopped or dead.
	if err := k.mon.enter(nil); err != nil {
		return err
	}
	defer k.mon.leave(nil)
	return k.acceptIn(k.find(key), key, granted)
}

func (k *multiBucket) acceptIn(e keyEntry, key uint64, granted keyHold) error {
	// lin: the key is taken here.
	if !e.there() || !e.word.CompareAndSwap(uint64(granted), uint64(granted.accepted())) {
		return k.failure(key, lockCorrupt, 0)
	}
	crashpoint.Hit("multilock.lock.accepted")
	return nil
}

const (
	// acceptTries bounds how often a waiter searches the entries for its grant. Usually few tries are needed,
	// because the granter stores the grant a few instructions after it has resolved the wait.
	acceptTries = 100
	acceptPause = 2
)

// These constants are the results of a wait for a key of a MultiLock. The result of a wait is stored in its
// outcome.
const (
	lockGranted uint32 = iota
	lockOwnerDead
	lockNotRecoverable
	lockCorrupt
)
