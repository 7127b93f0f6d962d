//go:build linux

package arenakernel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
)

func init() {
	agentOrders["open without boot ID"] = func(s *agent, o order, a *answer) (err error) {
		id, err := selfIdentity()
		if err != nil {
			return err
		}
		id.bootID = [16]byte{}
		selfIdentity = func() (identity, error) { return id, nil }
		o.Opts.OnFirst = func(_ *Arena, e Epoch) error {
			if e.Reboot {
				err = errors.New("Reboot is set")
			}
			return err
		}
		s.arena, err = Open(o.Arena, o.Opts)
		return err
	}
}

// newDiskArena makes an arena in a file that survives a reboot, and leaves it.
func newDiskArena(t *testing.T, o *Options) (path string) {
	path = filepath.Join(proctest.DirNotOn(t, unix.TMPFS_MAGIC, unix.RAMFS_MAGIC), "disk")
	a, err := Open(path, o)
	require.NoError(t, err)
	require.True(t, outlivesBoot(a.seg.File()))
	require.NoError(t, a.Close())
	return path
}

// afterReboot changes the file so that its last epoch seems to have begun before a reboot.
func afterReboot(t *testing.T, path string) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte("another boot id!"), hdrEpochBoot)
	require.NoError(t, err)
}

// TestFailedOnFirstKeepsTheWriteBack: a first participant whose OnFirst fails does not change the
// record of the last write-back of the file.
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

// TestJoinerThatGivesUpDoesNotVouchForTheFile: the last participant did not write the file back. A
// joiner whose Open then fails does not record a write-back either.
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

// TestUnknownBootIsNoReboot: a process that cannot read the ID of the current boot does not assume
// a reboot. It keeps the recorded ID. A later process that can read the ID of its boot then notices
// a reboot.
func TestUnknownBootIsNoReboot(t *testing.T) {
	o := Options{Size: 8 << 20, MaxParticipants: 4}
	path := newDiskArena(t, &o)
	ta := newTestArena(t, 4)
	open := order{Do: "open without boot ID", Arena: path, Opts: &Options{}}
	// A participant dies, so no process writes the file back.
	v := ta.start(t)
	v.must(t, order{Do: "open", Arena: path, Opts: &Options{}})
	v.Signal(t, unix.SIGKILL)
	v.WaitSignal(t, unix.SIGKILL)
	u := ta.start(t)
	u.must(t, open)
	u.Signal(t, unix.SIGKILL)
	u.WaitSignal(t, unix.SIGKILL)
	a, err := Open(path, &Options{OnFirst: func(_ *Arena, e Epoch) error {
		require.False(t, e.Reboot, "the boot is the same")
		require.False(t, e.Clean)
		return nil
	}})
	require.NoError(t, err)
	require.NoError(t, a.Close())

	afterReboot(t, path)
	u = ta.start(t)
	u.must(t, open)
	u.close(t) // writes the file back
	a, err = Open(path, &Options{OnFirst: func(_ *Arena, e Epoch) error {
		require.True(t, e.Reboot)
		require.True(t, e.Clean)
		return nil
	}})
	require.NoError(t, err)
	require.NoError(t, a.Close())
}
