//go:build linux && crashpoint

package prims_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/prims"
)

// TestOnceReaperBesideARewriter checks that a reaper gives up after some tries if a peer changes the word of a Once
// before each change of the reaper. Afterwards a call takes the turn of the dead runner.
func TestOnceReaperBesideARewriter(t *testing.T) {
	a := newArena(t, nil)
	o := newOnce(t, a, "o")
	tries := 0
	o.SetRunner(rwGone)
	o.ReapBeside(func() {
		if tries++; tries < 1000 {
			o.SetRunner(rwGone)
		}
	})
	require.Less(t, tries, 1000)
	ran := false
	o.Do(func() { ran = true })
	require.True(t, ran)
}

// TestFairMutexReaperBesideARewriter checks that a reaper gives up after some tries if a peer changes the owner word
// of a FairMutex before each change of the reaper. Afterwards the next call that needs the lock takes it back from
// the dead holder.
func TestFairMutexReaperBesideARewriter(t *testing.T) {
	a := newArena(t, nil)
	f, err := prims.OpenFairMutex(a, "f", &prims.FairMutexOptions{Policy: prims.PolicyRelease})
	require.NoError(t, err)
	tries := 0
	var rewrite func()
	rewrite = func() {
		if tries++; tries > 1000 {
			runtime.Goexit() // the test has failed
		}
		f.SetOpenOwner(rwGone)
		crashpoint.ArmFunc("arena.act.verified", 1, rewrite)
	}
	t.Cleanup(crashpoint.Disarm)
	f.SetOpenOwner(rwGone)
	crashpoint.ArmFunc("arena.act.verified", 1, rewrite)
	f.ReapOpen()
	crashpoint.Disarm()
	require.Less(t, tries, 1000)
	f.Lock()
	f.Unlock()
}

// TestReaperBesideAPeerThatOvertakesIt: a peer changes the commit word whenever a reaper is about to make a change. The
// reaper leaves the change to the next reap, which makes it when the peer has stopped.
func TestReaperBesideAPeerThatOvertakesIt(t *testing.T) {
	a := newArena(t, nil)
	s, err := prims.OpenSemaphore(a, "s", 4, nil)
	require.NoError(t, err)
	s.GiveShareTo(rwGone, 4)
	f, err := prims.OpenFairMutex(a, "f", &prims.FairMutexOptions{Policy: prims.PolicyRelease})
	require.NoError(t, err)
	f.SetOpenOwner(rwGone)
	for _, x := range []prims.Overtaken{s, f} {
		tries := 0
		var overtake func()
		overtake = func() {
			if tries++; tries < 20000 {
				x.NextChange()
				crashpoint.ArmFunc("record.commit.written", 1, overtake)
			}
		}
		t.Cleanup(crashpoint.Disarm)
		crashpoint.ArmFunc("record.commit.written", 1, overtake)
		again := x.ReapAndServe()
		crashpoint.Disarm()
		require.Less(t, tries, 20000, "%T", x)
		require.True(t, again, "%T", x)
		require.False(t, x.ReapAndServe(), "%T", x)
	}
	require.True(t, s.TryAcquire(4))
	f.Lock()
	f.Unlock()
}

// overtaken calls f. Before each change that f is about to make, overtaken calls the function when. If when returns
// true, a peer changes the commit word of the bucket first.
func overtaken(t *testing.T, x *prims.MultiLock, key uint64, when func() bool, f func()) {
	t.Cleanup(crashpoint.Disarm)
	var change func()
	change = func() {
		if when() {
			x.NextChange(key)
		}
		crashpoint.ArmFunc("record.commit.written", 1, change)
	}
	crashpoint.ArmFunc("record.commit.written", 1, change)
	f()
	crashpoint.Disarm()
}

// TestMultiLockReapOfManyKeysBesidePeers: a participant that has many keys of a bucket has died, or leaves. The reap
// takes all keys back, although peers overtake one change for each key.
func TestMultiLockReapOfManyKeysBesidePeers(t *testing.T) {
	const many = 5000
	manyKeys := func(t *testing.T) (*arena.Arena, *prims.MultiLock) {
		a := newArena(t, nil)
		x := openMulti(t, a, &prims.MultiLockOptions{Buckets: 1})
		for key := range uint64(many) {
			x.Lock(key)
		}
		require.Equal(t, many, x.Held(1))
		return a, x
	}
	everySecond := func() func() bool {
		n := 0
		return func() bool { n++; return n%2 == 1 }
	}
	t.Run("reap of a handle", func(t *testing.T) {
		_, x := manyKeys(t)
		for key := range uint64(many) {
			x.HoldFor(key, rwGone)
		}
		overtaken(t, x, 1, everySecond(), func() { require.False(t, x.ReapAndServe(1)) })
		require.Zero(t, x.Held(1))
	})
	t.Run("death", func(t *testing.T) {
		_, x := manyKeys(t)
		for key := range uint64(many) {
			x.HoldFor(key, rwGone)
		}
		overtaken(t, x, 1, everySecond(), func() { x.Repair(rwGone) })
		require.Zero(t, x.Held(1))
	})
	t.Run("leave", func(t *testing.T) {
		a, x := manyKeys(t)
		overtaken(t, x, 1, everySecond(), func() { x.Repair((*arenakernel.Arena)(a).Self()) })
		require.Zero(t, x.Held(1))
	})
}

// TestMultiLockReaperGivesUpOneKey: a peer overtakes all changes that a reaper makes for the first key. The reaper leaves
// this key to the next reap, and takes the other keys back.
func TestMultiLockReaperGivesUpOneKey(t *testing.T) {
	x := openMulti(t, newArena(t, nil), &prims.MultiLockOptions{Buckets: 1})
	const first, others = 1, 10
	for key := range uint64(1 + others) {
		x.Lock(first + key)
		x.HoldFor(first+key, rwGone)
	}
	tries := 0
	overtakes := func() bool { tries++; return tries <= prims.OvertakenMost }
	overtaken(t, x, first, overtakes, func() { require.True(t, x.ReapAndServe(first)) })
	require.Equal(t, 1, x.Held(first))
	require.Equal(t, prims.OvertakenMost+others, tries)
	require.False(t, x.ReapAndServe(first))
	require.Zero(t, x.Held(first))
}
