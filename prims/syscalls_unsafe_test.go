//go:build linux

package prims_test

import (
	"context"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// forbid installs a seccomp filter. The kernel then kills this process if the calling goroutine calls
// membarrier, futex_waitv, or futex on a word of the arena. forbid locks the goroutine to its thread. The
// filter is for that thread only, because other goroutines of the arena may be about to sleep. The futexes of
// the Go runtime are not in the arena, so they are still allowed.
func forbid(a *arena.Arena) error {
	const (
		load      = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal     = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		notLess   = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		ret       = unix.BPF_RET | unix.BPF_K
		number    = 0
		arg0, hi  = 16, 4 // offsets in struct seccomp_data, on a little-endian machine
		allow     = 0x7fff0000
		kill      = 0x80000000
		setFilter = 1 // SECCOMP_SET_MODE_FILTER
	)
	b := a.Segment().Bytes()
	first := uint64(segmentAddress(b))
	last := first + uint64(len(b)) - 1
	filter := []unix.SockFilter{
		{Code: load, K: number},
		{Code: equal, K: unix.SYS_MEMBARRIER, Jt: 9},
		{Code: equal, K: unix.SYS_FUTEX_WAITV, Jt: 8},
		{Code: equal, K: unix.SYS_FUTEX, Jf: 6},
		{Code: load, K: arg0 + hi},
		{Code: equal, K: uint32(first >> 32), Jf: 4},
		{Code: load, K: arg0},
		{Code: notLess, K: uint32(first), Jf: 2},
		{Code: notLess, K: uint32(last), Jt: 1},
		{Code: ret, K: kill},
		{Code: ret, K: allow},
		{Code: ret, K: kill},
	}
	if first>>32 != last>>32 {
		return syscall.ERANGE // the filter compares only the low half of an address
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, setFilter, 0, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return errno
	}
	return nil
}

// registerSilent registers a helper process for [silent]. The function open opens objects of the arena, and returns a
// function that uses them.
func registerSilent(process string, open func(a *arena.Arena) (act func(how string), err error)) {
	proctest.Register(process, func(c *proctest.Child) {
		var p struct{ Arena, How string }
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		act, err := open(a)
		if err != nil {
			c.Fatal(err)
		}
		for !a.Fenced() {
			runtime.Gosched()
		}
		if err := forbid(a); err != nil {
			c.Fatal(err)
		}
		c.Ready()
		act(p.How)
		// The process ends without Close, because Close would make system calls that wake others.
		c.Say(true)
		c.Await()
	})
}

// silent makes a process do something that must not need a system call: the kernel kills the process if it
// makes one. If trapped is true, the action does need a system call, and silent requires that the kernel kills
// the process.
func silent(t *testing.T, a *arena.Arena, process, how string, trapped bool) {
	t.Helper()
	p := proctest.Start(t, process, proctest.Params(struct{ Arena, How string }{nameOf(a), how}))
	p.Await(t)
	if trapped {
		p.WaitSignal(t, syscall.SIGSYS)
		return
	}
	var done bool
	p.Recv(t, &done)
	p.Kill(t)
}

func init() {
	registerSilent("syscalls", func(a *arena.Arena) (func(string), error) {
		m, err := prims.OpenMutex(a, "m", nil)
		if err != nil {
			return nil, err
		}
		checked, err := prims.OpenMutex(a, "checked", &prims.MutexOptions{Checked: true})
		if err != nil {
			return nil, err
		}
		f, err := prims.OpenFutex(a, "f", nil)
		if err != nil {
			return nil, err
		}
		return func(how string) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			switch how {
			case "uncontended":
				for range 200_000 {
					m.Lock()
					m.Unlock()
					m.LockContext(ctx)
					m.Unlock()
					m.TryLock()
					m.TryLock()
					m.Unlock()
					checked.Lock()
					checked.Unlock()
					f.Post()
					f.Wait(f.Get())
				}
			case "contended":
				m.Lock()
				m.Lock() // this call sleeps
			case "posted":
				f.Wait(f.Get() + 1)
			}
		}, nil
	})
}

func TestNoSyscalls(t *testing.T) {
	for _, how := range []string{"uncontended", "contended", "posted"} {
		t.Run(how, func(t *testing.T) { silent(t, newArena(t, nil), "syscalls", how, how != "uncontended") })
	}
}

// segmentAddress returns the address of the first byte of a segment.
func segmentAddress(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
