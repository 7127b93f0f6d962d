//go:build linux

package cinterop

import (
	"testing"

	"github.com/shmsync/shmsync"
)

// runReaps runs a verb of reaps.c.
func runReaps(t *testing.T, verb string) {
	t.Helper()
	name := newArena(t)
	runC(t, "reaps.c", name, verb)
	sound(t, name)
}

// A reaper in C finds the owner word of a lock open. Before the reaper takes the lock back, another process closes the
// word. The reaper still takes the lock back.
func TestReaperInCOfAWordThatIsClosedMeanwhile(t *testing.T) { runReaps(t, "shut meanwhile") }

// The holder of a FairMutex with PolicyRelease is marked dead, but its process has not ended. A reaper in C that has
// not opened the lock leaves the lock to that holder.
func TestReaperInCLeavesTheLockToWhoIsNotGone(t *testing.T) { runReaps(t, "not gone") }

// A reaper has no room for a slot record. Waiters then have to count the share of the dead participant themselves. Even
// a wait in C that begins before the reaper has counted the death finds the share.
func TestWaitInCBesideAReaperWithoutRoom(t *testing.T) { runReaps(t, "left to a wait") }

// A participant dies after it has committed a change of one bucket of a MultiLock. The next participant in the same
// slot, in C, carries this change out before it changes another bucket.
func TestMultiLockInheritedRecordInC(t *testing.T) { runReaps(t, "inherited") }

// A participant that has many keys of one bucket of a MultiLock is killed, or leaves the arena. The reap in C takes all
// of these keys back.
func TestReapOfManyKeysOfABucketInC(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"many keys of the dead", "many keys of a leaver"} {
		t.Run(verb, func(t *testing.T) { runReaps(t, verb) })
	}
}

// A peer stores holds of dead participants in the word of a reader again and again. Calls in C that take these holds
// back end with EPROTO.
func TestRWSpinLockCountThatKeepsChangingInC(t *testing.T) { runReaps(t, "keeps changing") }

// The kernel has marked a participant whose threads may still run. A process in C declares this participant dead only
// if the process can make a fence.
func TestDeathInCIsDeclaredOnlyAfterAFence(t *testing.T) {
	for _, f := range []*shmsync.Feature{shmsync.FeatureOFDLock, shmsync.FeatureRobustList, shmsync.FeatureMembarrier} {
		if err := f.Check(); err != nil {
			t.Skipf("needs byte locks, robust lists and membarrier: %v", err)
		}
	}
	runReaps(t, "fence")
	runReaps(t, "fence forbidden")
}
