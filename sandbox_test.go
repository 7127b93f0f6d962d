//go:build linux

package shmsync_test

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
)

// refuse forbids all system calls that the library can do without. From now on they fail in all threads, and the
// parameter answer is their errno.
func refuse(answer syscall.Errno) error {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret    = unix.BPF_RET | unix.BPF_K
		number = 0      // offset of the number of the call in struct seccomp_data
		second = 16 + 8 // offset of the lower half of the second argument of the call
	)
	prog := []unix.SockFilter{
		{Code: load, K: number},
		{Code: equal, K: unix.SYS_MEMBARRIER, Jt: 7},
		{Code: equal, K: unix.SYS_FUTEX_WAITV, Jt: 6},
		{Code: equal, K: unix.SYS_GET_ROBUST_LIST, Jt: 5},
		{Code: equal, K: unix.SYS_FCNTL, Jf: 3},
		{Code: load, K: second},
		{Code: equal, K: unix.F_OFD_SETLK, Jt: 2},
		{Code: equal, K: unix.F_OFD_GETLK, Jt: 1},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(answer)},
	}
	return proctest.Filter(prog)
}

// absent says whether an error means that a feature is absent.
func absent(err error) string {
	switch {
	case err == nil:
		return "works"
	case errors.Is(err, shmsync.ErrNotSupported):
		return "absent"
	}
	return err.Error()
}

func init() {
	proctest.Register("feature/refused", func(c *proctest.Child) {
		var answer syscall.Errno
		c.Params(&answer)
		if err := refuse(answer); err != nil {
			c.Say(map[string]string{"filter": err.Error()})
			return
		}
		said := map[string]string{}
		for _, f := range shmsync.Features() {
			said[f.Name()] = absent(f.Check())
		}
		f, err := os.CreateTemp("", "")
		if err != nil {
			c.Fatal(err)
		}
		os.Remove(f.Name())
		_, err = shmsync.LockByte(f, 0)
		said["LockByte"] = absent(err)
		_, err = shmsync.ByteLocked(f, 0)
		said["ByteLocked"] = absent(err)
		said["RegisterFence"] = absent(shmsync.RegisterFence())
		said["Fence"] = absent(shmsync.Fence())
		list, err := shmsync.NewRobustList()
		if err != nil {
			c.Fatal(err)
		}
		runtime.LockOSThread()
		said["Register"] = absent(list.Register())
		c.Say(said)
	})
}

// TestRefusedCallsAreAbsentFeatures checks that a feature counts as absent if a sandbox refuses its
// system call with EPERM or ENOSYS. Functions that use the feature without a probe report it as
// absent, too.
func TestRefusedCallsAreAbsentFeatures(t *testing.T) {
	if os.Getenv("SHMSYNC_DISABLE") != "" || os.Getenv("SHMSYNC_EXEC_WRAP") != "" {
		proctest.Skip(t, "needs SHMSYNC_DISABLE and SHMSYNC_EXEC_WRAP to be unset: with them, features are missing", "feature/refused")
	}
	for _, answer := range []syscall.Errno{syscall.EPERM, syscall.ENOSYS} {
		p := proctest.Start(t, "feature/refused", proctest.Params(answer))
		var said map[string]string
		p.Recv(t, &said)
		if why := said["filter"]; why != "" {
			t.Skip("needs seccomp: " + why)
		}
		want := map[string]string{}
		for name := range said {
			want[name] = "absent"
		}
		require.Equal(t, want, said, "all calls fail with %v", answer)
	}
}

// TestOtherErrorsDoNotMakeAFeatureAbsent: an error that does not mean that a call is absent is
// returned unchanged, and the feature does not count as absent.
func TestOtherErrorsDoNotMakeAFeatureAbsent(t *testing.T) {
	if os.Getenv("SHMSYNC_EXEC_WRAP") != "" {
		proctest.Skip(t, "needs seccomp: SHMSYNC_EXEC_WRAP is set, and an emulator has none", "feature/refused")
	}
	p := proctest.Start(t, "feature/refused", proctest.Params(syscall.ENOMEM))
	var said map[string]string
	p.Recv(t, &said)
	if why := said["filter"]; why != "" {
		t.Skip("needs seccomp: " + why)
	}
	require.Contains(t, said["membarrier"], "cannot allocate memory")
	require.Contains(t, said["ofd"], "cannot allocate memory")
	require.Contains(t, said["LockByte"], "cannot allocate memory")
}
