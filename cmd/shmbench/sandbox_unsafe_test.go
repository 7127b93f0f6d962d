//go:build linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/place"
)

// restricted runs this program as a child process with a restriction. The function limit restricts a new thread. This
// thread starts the child, which inherits the restriction. The thread ends with its goroutine.
func restricted(t *testing.T, limit func() error, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, patient(args)...)
	cmd.Env = append(os.Environ(), "SHMBENCH_WORKER=1", "TMPDIR="+t.TempDir())
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	limited, started := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := limit()
		limited <- err
		if err == nil {
			started <- cmd.Start()
		}
	}()
	err = <-limited
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS) {
		t.Skipf("needs to restrict a process with seccomp or a set of CPUs: %v", err)
	}
	require.NoError(t, err)
	require.NoError(t, <-started)
	_ = cmd.Wait() // the status is checked below
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// withoutMbind makes the system calls that place memory fail, as container runtimes do.
func withoutMbind() error {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret    = unix.BPF_RET | unix.BPF_K
		allow  = 0x7fff0000
		refuse = 0x00050000 | uint32(unix.EPERM)
		filter = 1 // SECCOMP_SET_MODE_FILTER
	)
	prog := []unix.SockFilter{
		{Code: load},
		{Code: equal, K: unix.SYS_MBIND, Jt: 3}, {Code: equal, K: unix.SYS_GET_MEMPOLICY, Jt: 2}, {Code: equal, K: unix.SYS_MOVE_PAGES, Jt: 1},
		{Code: ret, K: allow}, {Code: ret, K: refuse},
	}
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

// If the system does not let a process place memory, the cells that place memory are skipped, with the reason. The
// other cells run.
func TestWithoutPermissionToPlace(t *testing.T) {
	args := []string{"mem", "--mem=first-touch,bind:0", "--huge=none", "--mib=4", "--time=5ms", "--warmup=1ms", "--count=1", "--cc=none", "--format=json"}
	code, out, errs := restricted(t, withoutMbind, args...)
	require.Equal(t, exitOK, code, errs)
	status := map[string]string{}
	for _, c := range parseDocument(t, out).Cells {
		status[c.Params["mem"]] = c.Status
		if c.Status == bench.StatusSkipped {
			require.Contains(t, c.Reason, "a sandbox (seccomp) forbids mbind")
		}
	}
	require.Equal(t, map[string]string{"first-touch": bench.StatusOK, "bind:0": bench.StatusSkipped}, status)
	code, _, errs = restricted(t, withoutMbind, append(args, "--strict")...)
	require.Equal(t, exitSkipped, code, errs)
}

// A CPU that exists, but that this process may not use, is refused. The message names the CPU.
func TestCPUOutsideTheCpuset(t *testing.T) {
	cpus, err := place.AllowedCPUs()
	require.NoError(t, err)
	if len(cpus) < 2 {
		t.Skip("needs two CPUs")
	}
	one := func() error {
		var set unix.CPUSet
		set.Set(cpus[0])
		return unix.SchedSetaffinity(0, &set)
	}
	for _, args := range [][]string{{"--cpus=" + place.JoinInts(cpus[1:2])}, {"--place=" + place.JoinInts(cpus[:1]) + "+" + place.JoinInts(cpus[1:2])}} {
		code, out, errs := restricted(t, one, append(args, "handoff", "-n")...)
		require.Equal(t, exitUsage, code, args)
		require.Empty(t, out)
		require.Contains(t, errs, "this process may not run on CPU "+place.JoinInts(cpus[1:2]))
	}
}
