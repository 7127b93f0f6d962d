//go:build linux

package arenakernel

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

// fewFiles lets this process open n further files, until restore is called.
func fewFiles(n int) (restore func() error, err error) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		return nil, err
	}
	limit := 0
	for ; ; limit++ {
		if _, err := unix.FcntlInt(uintptr(limit), unix.F_GETFD, 0); err == nil {
			continue
		}
		if n == 0 {
			break
		}
		n--
	}
	restore = func() error { return unix.Setrlimit(unix.RLIMIT_NOFILE, &was) }
	return restore, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(limit), Max: was.Max})
}

// withFewFiles calls f while this process may open n further files.
func withFewFiles(n int, f func() error) error {
	restore, err := fewFiles(n)
	if err != nil {
		return err
	}
	return errors.Join(f(), restore())
}

// refuseByteLocks makes the kernel answer every attempt to change a byte lock with an error.
func refuseByteLocks(answer unix.Errno) error {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret    = unix.BPF_RET | unix.BPF_K
		number = 0      // offset of the number of the call in struct seccomp_data
		second = 16 + 8 // offset of the lower half of its second argument
	)
	return proctest.Filter([]unix.SockFilter{
		{Code: load, K: number},
		{Code: equal, K: unix.SYS_FCNTL, Jf: 2},
		{Code: load, K: second},
		{Code: equal, K: unix.F_OFD_SETLK, Jt: 1},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(answer)},
	})
}

// A found says what a call returned in a process that lacks some resource.
type found struct {
	Err               string // "" for no error
	Is                bool   // Err matches the errno that was expected
	Unsupported, Full bool   // Err matches these sentinel errors
	Start             uint64
	Reboot            bool
}

func findingOf(err error, expected unix.Errno) found {
	f := found{Is: errors.Is(err, expected), Unsupported: errors.Is(err, shmsync.ErrNotSupported), Full: errors.Is(err, shmsync.ErrNoSpace)}
	if err != nil {
		f.Err = err.Error()
	}
	return f
}

func init() {
	// "join with few files" opens the file of the arena. Then it joins while the process may open N further files.
	agentOrders["join with few files"] = func(s *agent, o order, a *answer) error {
		seg, err := shm.Open(o.Arena, nil)
		if err != nil {
			return err
		}
		return withFewFiles(o.N, func() error {
			s.arena, err = FromSegment(seg, o.Opts)
			return err
		})
	}
	proctest.Register("arena/refused locks", func(c *proctest.Child) {
		var name string
		var answer unix.Errno
		c.Recv(&name)
		c.Recv(&answer)
		a, err := Open(name+".first", &Options{Size: 1 << 20, MaxParticipants: 2})
		if err == nil {
			defer shm.Remove(name + ".first")
			err = a.Close()
		}
		if err != nil {
			c.Fatal(err)
		}
		if err := refuseByteLocks(answer); err != nil {
			c.Say(found{Err: "needs seccomp: " + err.Error()})
			return
		}
		_, err = Open(name, &Options{Size: 1 << 20, MaxParticipants: 2})
		c.Say(findingOf(err, answer))
	})
	proctest.Register("arena/identity", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		seg, err := shm.Open(name, nil)
		if err != nil {
			c.Fatal(err)
		}
		restore, err := fewFiles(1)
		if err != nil {
			c.Fatal(err)
		}
		var tries atomic.Int64
		read := selfIdentity
		selfIdentity = func() (identity, error) {
			defer tries.Add(1)
			return read()
		}
		a, err := FromSegment(seg, nil)
		if err != nil {
			c.Fatal(err)
		}
		feature := findingOf(shmsync.FeatureThreads.Check(), unix.EMFILE)
		start := a.u64(a.slot(a.mySlot) + slotStart)
		pollUntil(func() bool { return tries.Load() > 0 })
		feature.Start = start.Load()
		c.Say(feature)
		if err := restore(); err != nil {
			c.Fatal(err)
		}
		c.Say(findingOf(shmsync.FeatureThreads.Check(), 0))
		pollUntil(func() bool { return start.Load() != 0 })
		if err := a.Close(); err != nil {
			c.Fatal(err)
		}
	})
	proctest.Register("arena/last close", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := Open(name, &Options{Size: 1 << 20, MaxParticipants: 2, Lifetime: LifetimeEphemeral})
		if err != nil {
			c.Fatal(err)
		}
		c.Say(findingOf(withFewFiles(0, a.Close), unix.EMFILE))
	})
	proctest.Register("arena/boot", func(c *proctest.Child) {
		var path string
		c.Params(&path)
		seg, err := shm.OpenAt(path, nil)
		if err != nil {
			c.Fatal(err)
		}
		reboot := false
		o := &Options{OnFirst: func(_ *Arena, e Epoch) error {
			reboot = e.Reboot
			return nil
		}}
		err = withFewFiles(1, func() error {
			a, err := FromSegment(seg, o)
			if err == nil {
				err = errors.Join(a.Close(), fmt.Errorf("it is in, and Reboot is %v", reboot))
			}
			return err
		})
		c.Say(findingOf(err, unix.EMFILE))
		a, err := Open(path, o)
		if err == nil {
			err = a.Close()
		}
		f := findingOf(err, 0)
		f.Reboot = reboot
		c.Say(f)
	})
}

// TestJoinWithTooFewFilesIsRefused: a process has too many files open, so it cannot open the file of the arena a
// second time. It must not join without a byte lock: its Open fails, and the next joiner begins an epoch.
func TestJoinWithTooFewFilesIsRefused(t *testing.T) {
	ta := newTestArena(t, 3)
	ta.join(t, "maker").close(t)
	s := ta.start(t)
	refused := s.try(t, order{Do: "join with few files", Arena: ta.name, Opts: &ta.opts})
	first := false
	o := ta.opts
	o.OnFirst = func(*Arena, Epoch) error {
		first = true
		return nil
	}
	a, err := Open(ta.name, &o)
	require.NoError(t, err)
	defer a.Close()
	require.True(t, first)
	require.Contains(t, refused.Err, "a second time")
	require.Contains(t, refused.Err, "too many open files")
	s.self = s.must(t, order{Do: "join with few files", Arena: ta.name, Opts: &ta.opts, N: 1}).Self
	require.True(t, a.slotState(s.self.Slot()).hasByte())
	s.close(t)
}

// TestRefusedByteLockIsNoFullArena: if the kernel refuses the byte lock of each slot although no process has it, the
// error says why. It does not say that the arena is full.
func TestRefusedByteLockIsNoFullArena(t *testing.T) {
	for _, answer := range []unix.Errno{unix.ENOLCK, unix.EACCES} {
		ta := newTestArena(t, 2)
		p := proctest.Start(t, "arena/refused locks")
		p.Send(ta.name)
		p.Send(answer)
		var f found
		p.Recv(t, &f)
		p.WaitExit(t)
		if why, ok := strings.CutPrefix(f.Err, "needs seccomp: "); ok {
			t.Skip("needs seccomp: " + why)
		}
		require.Contains(t, f.Err, "byte lock")
		require.Contains(t, f.Err, answer.Error())
		require.False(t, f.Full, f.Err)
		require.Equal(t, answer == unix.EACCES, f.Unsupported, f.Err)
	}
}

// TestIdentityThatCouldNotBeReadIsReadLater: a process joins while it can open only the one file that it needs for its
// byte lock. It learns its identity when it can open files again, and does not take the shortage for a missing feature.
func TestIdentityThatCouldNotBeReadIsReadLater(t *testing.T) {
	needThreads(t)
	ta := newTestArena(t, 2)
	ta.join(t, "maker").close(t)
	p := proctest.Start(t, "arena/identity", proctest.Params(ta.name))
	var f found
	p.Recv(t, &f)
	require.True(t, f.Is, f.Err)
	require.False(t, f.Unsupported, f.Err)
	require.Zero(t, f.Start)
	p.Recv(t, &f)
	require.Empty(t, f.Err)
	p.WaitExit(t)
}

// TestBootThatCouldNotBeRead: after a reboot, a process joins an arena on a disk. It has too many files open, so it
// cannot read the ID of its boot, and the join fails. When the process can open files again, its next Open notices the
// reboot.
func TestBootThatCouldNotBeRead(t *testing.T) {
	path := newDiskArena(t, &Options{Size: 8 << 20, MaxParticipants: 4})
	afterReboot(t, path)
	p := proctest.Start(t, "arena/boot", proctest.Params(path))
	var f found
	p.Recv(t, &f)
	require.True(t, f.Is, f.Err)
	p.Recv(t, &f)
	require.Empty(t, f.Err)
	require.True(t, f.Reboot)
	p.WaitExit(t)
}

// TestLastCloseWithoutFiles: the last Close of an ephemeral arena removes the file, even if the process can open no
// further file.
func TestLastCloseWithoutFiles(t *testing.T) {
	ta := newTestArena(t, 2)
	p := proctest.Start(t, "arena/last close", proctest.Params(ta.name))
	var f found
	p.Recv(t, &f)
	require.Empty(t, f.Err)
	require.NoFileExists(t, ta.path())
	p.WaitExit(t)
}

// TestLastCloseOfAFileThatGrew: a peer has made the file of an ephemeral arena larger, and has written the header of an
// arena with more slots. The last Close examines the file as it is now.
func TestLastCloseOfAFileThatGrew(t *testing.T) {
	ta := newTestArena(t, 2)
	a := lastOf(t, ta)
	const size = 8 << 20
	require.Less(t, a.seg.Size(), int64(size))
	require.NoError(t, a.seg.File().Truncate(size))
	_, err := a.seg.File().WriteAt(formatted(t, size, MaxSlots)[:headerSize], 0)
	require.NoError(t, err)
	a.Close() // it may fail, but must not panic
}

// TestLastCloseSaysThatTheFileStays: the last Close of an ephemeral arena returns an error if the file could not be
// removed.
func TestLastCloseSaysThatTheFileStays(t *testing.T) {
	ta := newTestArena(t, 2)
	a := lastOf(t, ta)
	before := renameat2
	t.Cleanup(func() { renameat2 = before })
	renameat2 = func(int, string, int, string, uint) error { return unix.EIO }
	require.ErrorIs(t, a.Close(), unix.EIO)
	require.FileExists(t, ta.path())
	require.ErrorIs(t, a.Close(), shmsync.ErrClosed, "it has left nevertheless")
	renameat2 = before
	require.NoError(t, Remove(ta.name))
}
