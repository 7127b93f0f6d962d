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
