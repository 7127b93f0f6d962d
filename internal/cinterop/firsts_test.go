//go:build linux

package cinterop

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// runFirsts runs a verb of firsts.c. SIGALRM ends a verb that hangs.
func runFirsts(t *testing.T, verb, name string) {
	t.Helper()
	runC(t, "firsts.c", verb, name)
}

// A joiner is stopped while it takes over the slot of a dead participant. A C program that then becomes the first
// participant of an epoch does the repairs that the joiner has not done.
func TestFirstInCRepairsWhatAStoppedHeirHasNot(t *testing.T) {
	t.Parallel()
	runFirsts(t, "heir", emptyArena(t))
}

// emptyArena makes an arena with two slots, and no process is in it.
func emptyArena(t *testing.T) (name string) {
	name = unusedName(t)
	a, err := arena.Create(name, &arena.Options{Size: 2 << 20, MaxParticipants: 2})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	return name
}

// The first participant of an epoch, a C program, does not wait for a joiner that was stopped while it reaped. It
// learns of each death once, and does not change objects whose kind it does not know.
func TestFirstInCReapsTheDead(t *testing.T) {
	for _, verb := range []string{"reap", "pending", "closing", "twice", "opened", "heirs", "given up", "dying", "overwritten", "waiting", "version"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel() // these verbs wait for seconds
			runC(t, "firstreap.c", verb, emptyArena(t))
		})
	}
}

// A process in C learns that the file of its arena was removed.
func TestOnDetachedInC(t *testing.T) {
	t.Parallel()
	runFirsts(t, "detached", emptyArena(t))
}

// A C program that is the first participant of an epoch recovers the objects that a death has made unusable.
func TestRecoverAllInC(t *testing.T) { runFirsts(t, "recover", emptyArena(t)) }

// runRecover runs a verb of recover.c. SIGALRM ends a verb that hangs.
func runRecover(t *testing.T, verb string) {
	t.Helper()
	name := unusedName(t)
	a, err := arena.Create(name, &arena.Options{Size: 8 << 20, MaxParticipants: 8})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	runC(t, "recover.c", verb, name)
}

// shmsync_recover_all finds a lock whose holder has died, even while a living process reads or has begun to lock.
func TestRecoverAllInCBesideCallsOfTheLiving(t *testing.T) {
	t.Parallel()
	runRecover(t, "busy")
}

// shmsync_recover_all locks no healthy object. So a process that dies at any point of this call leaves healthy objects
// healthy.
func TestRecoverAllInCLocksNothingThatIsHealthy(t *testing.T) { runRecover(t, "healthy") }

// TestRecoverAllInCNeedsNoMemory checks shmsync_recover_all in a participant that has opened no object. The call only
// reads healthy objects and takes no memory of the arena, so it succeeds in a full arena.
func TestRecoverAllInCNeedsNoMemory(t *testing.T) {
	name := unusedName(t)
	a, err := arena.Open(name, &arena.Options{Size: 2 << 20, MaxParticipants: 8})
	require.NoError(t, err)
	defer a.Close()
	for what, open := range healthyObjects {
		require.NoError(t, open(a), what)
	}
	newcomer := func() {
		t.Helper()
		runC(t, "recover.c", "newcomer", name)
	}
	before := a.Stats()
	newcomer()
	after := a.Stats()
	require.Equal(t, before.SlotRecords, after.SlotRecords)
	require.Equal(t, before.BytesUsed, after.BytesUsed)
	for size := uint64(64 << 10); size >= 64; {
		if _, err := a.Alloc(size, 0); err != nil {
			size -= 64 // each class of blocks
		}
	}
	newcomer()
	require.Equal(t, before.SlotRecords, a.Stats().SlotRecords)
	require.NoError(t, a.Check())
}

// healthyObjects has a function for each kind that shmsync_recover_all knows. It opens an object of that kind, uses it,
// and leaves it usable.
var healthyObjects = map[string]func(a *arena.Arena) error{
	"mutex": func(a *arena.Arena) error {
		l, err := prims.OpenMutex(a, "mutex", nil)
		return usedLock(l, err)
	},
	"rwmutex": func(a *arena.Arena) error {
		l, err := prims.OpenRWMutex(a, "rwmutex", nil)
		return usedLock(l, err)
	},
	"rwmutex with an undo log": func(a *arena.Arena) error {
		l, err := prims.OpenRWMutex(a, "logged", &prims.RWMutexOptions{Policy: prims.PolicyRollback})
		return usedLock(l, err)
	},
	"fairmutex": func(a *arena.Arena) error {
		l, err := prims.OpenFairMutex(a, "fair", nil)
		return usedLock(l, err)
	},
	"spinlock": func(a *arena.Arena) error {
		l, err := prims.OpenSpinLock(a, "spin", nil)
		return usedLock(l, err)
	},
	"rwspinlock": func(a *arena.Arena) error {
		l, err := prims.OpenRWSpinLock(a, "rwspin", nil)
		return usedLock(l, err)
	},
	"multilock": func(a *arena.Arena) error {
		m, err := prims.OpenMultiLock(a, "multi", nil)
		if err == nil {
			m.Lock(7).Unlock()
			m.Lock(9) // a living participant holds it
		}
		return err
	},
	"waitgroup": func(a *arena.Arena) error {
		g, err := prims.OpenWaitGroup(a, "group", nil)
		if err == nil {
			g.Add(2)
			g.Done()
		}
		return err
	},
	"latch": func(a *arena.Arena) error {
		l, err := prims.OpenLatch(a, "latch", 2, nil)
		if err == nil {
			l.Claim(1) // the commit word becomes one of the logged form
		}
		return err
	},
	"barrier": func(a *arena.Arena) error {
		b, err := prims.OpenBarrier(a, "barrier", 2, nil)
		if err == nil {
			b.Register(1)
		}
		return err
	},
	"future": func(a *arena.Arena) error {
		f, err := prims.OpenFuture(a, "future", nil)
		if err == nil {
			f.Claim()
		}
		return err
	},
}

// usedLock uses a lock that was opened, and holds it at the end.
func usedLock(l sync.Locker, err error) error {
	if err == nil {
		l.Lock()
		//lint:ignore SA2001 the lock has been used before it is held
		l.Unlock()
		l.Lock()
	}
	return err
}

// TestRecoverAllInCFindsWhatIsLost checks shmsync_recover_all in a participant that has opened no object. The call
// finds each object that the death of a participant, a failed repair, or a peer has made unusable.
func TestRecoverAllInCFindsWhatIsLost(t *testing.T) { runRecover(t, "found") }

// TestRecoverAllInCSaysThatThereIsNoRoom checks that shmsync_recover_all fails in a full arena if it has no room to
// recover an object.
func TestRecoverAllInCSaysThatThereIsNoRoom(t *testing.T) {
	for _, object := range []string{"rwmutex", "fair", "rwspin", "multi", "group", "latch", "barrier"} {
		t.Run(object, func(t *testing.T) { runRecover(t, "full "+object) })
	}
}

// TestRecoverAllInCUsesTheHeadroom checks shmsync_recover_all in an arena that users have filled with their data. The
// call recovers an object, although it needs a new slot record for that. The headroom has room for the slot record.
func TestRecoverAllInCUsesTheHeadroom(t *testing.T) {
	for _, object := range []string{"rwmutex", "fair", "rwspin", "multi", "group", "latch", "barrier"} {
		t.Run(object, func(t *testing.T) { runRecover(t, "headroom "+object) })
	}
}

// TestFullArenaLosesNothingInC checks an arena that users have filled with their data. A process joins, uses objects of
// all kinds, and waits for some of them. After the holder of these objects has died, another process joins and recovers
// them.
func TestFullArenaLosesNothingInC(t *testing.T) {
	for _, verb := range []string{"newcomers", "newcomers, one by one"} {
		t.Run(verb, func(t *testing.T) { runRecover(t, verb) })
	}
}

// If the repair function sets a Future whose producer has died, the result of the repair function stays.
func TestRecoverAllInCKeepsWhatRepairHasSet(t *testing.T) { runRecover(t, "kept") }

// shmsync_recover_all returns an error if a peer has overwritten an object, or if memory runs out.
func TestRecoverAllInCReportsDamage(t *testing.T) { runRecover(t, "damage") }

// A peer overwrites the word of a lock while a process in C repairs the lock. The call returns an error.
func TestRecoveryInCThatAPeerOverwrites(t *testing.T) { runRecover(t, "lost") }

// A lock call in C that finds a dead holder and repairs the data succeeds. It leaves shmsync_error and shmsync_who_died
// as they are, so these still describe the last call that failed.
func TestRepairInCIsNoFailure(t *testing.T) { runRecover(t, "notes") }

// A process in C removes only a file that it has checked. If the process dies during the removal, it leaves no
// additional file behind.
func TestRemovalInC(t *testing.T) {
	for _, verb := range []string{"judged", "taken", "removed", "without bytes", "not new", "not whole", "foreign", "foreign without renameat2"} {
		t.Run(verb, func(t *testing.T) {
			name := emptyArena(t)
			runFirsts(t, verb, name)
			left, err := filepath.Glob(filepath.Join(shm.Dir, "*"+name+"*"))
			require.NoError(t, err)
			require.Equal(t, []string{filepath.Join(shm.Dir, name)}, left)
		})
	}
}
