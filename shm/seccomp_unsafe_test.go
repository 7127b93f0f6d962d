//go:build linux

package shm

import (
	"errors"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/proctest"
)

// forbid makes the given system calls of this thread fail with EPERM, as container runtimes do. It
// locks the goroutine to the thread.
func forbid(calls ...uint32) error {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret    = unix.BPF_RET | unix.BPF_K
		allow  = 0x7fff0000
		refuse = 0x00050000 | uint32(unix.EPERM)
		filter = 1 // SECCOMP_SET_MODE_FILTER
	)
	prog := []unix.SockFilter{{Code: load, K: 0}}
	for i, nr := range calls {
		prog = append(prog, unix.SockFilter{Code: equal, K: nr, Jt: uint8(len(calls) - i)})
	}
	prog = append(prog, unix.SockFilter{Code: ret, K: allow}, unix.SockFilter{Code: ret, K: refuse})
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	p := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	// SAFETY: the kernel reads p and what it points to, and keeps a copy.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, filter, 0, uintptr(unsafe.Pointer(&p)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return errno
	}
	return nil
}

// forbidden is the result in a process that may not place memory.
type forbidden struct {
	Skip             string
	Create, Place    string
	Where            string
	Supported        bool
	Verified, Sparse bool
}

func init() {
	proctest.Register("shm/forbidden", func(c *proctest.Child) {
		if err := forbid(unix.SYS_MBIND, unix.SYS_GET_MEMPOLICY, unix.SYS_MOVE_PAGES); err != nil {
			c.Say(forbidden{Skip: err.Error()})
			return
		}
		bind0 := Policy{Mode: PolicyBind, Nodes: []int{0}}
		s, err := CreateMemfd("forbidden", page, greet, &Options{NUMA: bind0})
		if err != nil {
			c.Fatal(err)
		}
		f := forbidden{Supported: true}
		if d := s.Degraded(); len(d) == 1 && errors.Is(d[0], ErrNotSupported) && errors.Is(d[0], unix.EPERM) {
			f.Create = d[0].Error()
		}
		pl := s.Place(0, s.Size(), bind0)
		f.Place, f.Verified = pl.Err.Error(), pl.Verified
		if err := s.Place(0, s.Size(), Policy{}).Err; err != nil {
			c.Fatalf("the default policy, first touch, is refused: %v", err)
		}
		_, err = s.Where(0, s.Size())
		f.Supported = !errors.Is(err, ErrNotSupported)
		f.Where = err.Error()
		if !greeted(s) {
			c.Fatalf("the segment does not work")
		}
		c.Say(f)
	})
}

// TestPlaceForbidden: a seccomp filter forbids the system calls for placement, as filters of container
// runtimes do. Segments work, and report which properties they lack.
func TestPlaceForbidden(t *testing.T) {
	p := proctest.Start(t, "shm/forbidden")
	var f forbidden
	p.Recv(t, &f)
	p.WaitExit(t)
	if f.Skip != "" {
		t.Skipf("needs seccomp, to forbid system calls: %s", f.Skip)
	}
	require.Contains(t, f.Create, "memfd:forbidden: bind:0: a sandbox (seccomp) forbids mbind")
	require.Contains(t, f.Place, "CAP_SYS_NICE")
	require.False(t, f.Verified)
	require.False(t, f.Supported)
	require.Contains(t, f.Where, "get_mempolicy is forbidden or missing here")
}
