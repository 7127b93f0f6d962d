//go:build linux && crashpoint

package prims_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

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
