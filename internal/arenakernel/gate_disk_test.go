//go:build linux

package arenakernel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

// newDiskArena makes an arena in a file that outlives a reboot, and leaves it.
func newDiskArena(t *testing.T, o *Options) (path string) {
	path = filepath.Join(t.TempDir(), "disk")
	a, err := Open(path, o)
	require.NoError(t, err)
	disk := outlivesBoot(a.seg.File())
	require.NoError(t, a.Close())
	if !disk {
		t.Skip("needs a file system that outlives a reboot")
	}
	return path
}

// afterReboot makes the file one whose last epoch began under another boot.
func afterReboot(t *testing.T, path string) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte("another boot id!"), hdrEpochBoot)
	require.NoError(t, err)
}

// A first whose OnFirst fails does not change what is known of the last write-back.
func TestFailedOnFirstKeepsTheWriteBack(t *testing.T) {
	o := Options{Size: 8 << 20, MaxParticipants: 4}
	path := newDiskArena(t, &o)
	why := errors.New("later")
	_, err := Open(path, &Options{OnFirst: func(*Arena, Epoch) error { return why }})
	require.ErrorIs(t, err, why)
	afterReboot(t, path)
	a, err := Open(path, &o)
	require.NoError(t, err)
	require.NoError(t, a.Close())
}

// A joiner that gives up does not vouch for pages that the last participant did not write back.
func TestJoinerThatGivesUpDoesNotVouchForTheFile(t *testing.T) {
	o := Options{Size: 8 << 20, MaxParticipants: 4}
	path := newDiskArena(t, &o)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteAt(make([]byte, 4), hdrSynced)
	require.NoError(t, err)
	afterReboot(t, path)
	locked, err := shmsync.LockByte(f, gateByte)
	require.NoError(t, err)
	require.True(t, locked)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = OpenContext(ctx, path, &o)
	require.ErrorIs(t, err, context.Canceled)
	shmsync.UnlockByte(f, gateByte)
	_, err = Open(path, &o)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "started again")
}
