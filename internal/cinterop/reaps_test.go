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

// While a reaper in C takes an open word back, another process closes the word. The reaper takes the lock back all the
// same.
func TestReaperInCOfAWordThatIsClosedMeanwhile(t *testing.T) { runReaps(t, "shut meanwhile") }

// A FairMutex has PolicyRelease. Its holder is marked dead, but the process has not ended. A reaper in C that has not
// opened the lock leaves it to that holder.
func TestReaperInCLeavesTheLockToWhoIsNotGone(t *testing.T) { runReaps(t, "not gone") }

// A reaper without room for a slot record leaves the share of a dead participant to the waiters, among them a wait in C that
// begins before the reaper has counted the death.
func TestWaitInCBesideAReaperWithoutRoom(t *testing.T) { runReaps(t, "left to a wait") }

// A participant dies after it has committed a change of one bucket of a MultiLock. The next participant of its slot, in C,
// makes a change of another bucket. Before that, it carries the first change out.
func TestMultiLockInheritedRecordInC(t *testing.T) { runReaps(t, "inherited") }

// A peer stores holds of dead participants in the word of a reader all the time. Calls in C that take such holds back end
// with EPROTO.
func TestRWSpinLockCountThatKeepsChangingInC(t *testing.T) { runReaps(t, "keeps changing") }

// The kernel has marked a participant whose threads may still run. A process in C that can make no fence does not declare it
// dead, and a process that can make one does.
func TestDeathInCIsDeclaredOnlyAfterAFence(t *testing.T) {
	for _, f := range []*shmsync.Feature{shmsync.FeatureOFDLock, shmsync.FeatureRobustList, shmsync.FeatureMembarrier} {
		if err := f.Check(); err != nil {
			t.Skipf("needs byte locks, robust lists and membarrier: %v", err)
		}
	}
	runReaps(t, "fence")
	runReaps(t, "fence forbidden")
}
