//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The actions of a filter of system calls, from linux/seccomp.h.
const (
	seccompKill  = 0x80000000
	seccompErrno = 0x00050000
	seccompAllow = 0x7fff0000

	seccompSetModeFilter = 1
)

// answers maps the name of an answer to the action that the filter returns for it.
var answers = map[string]uint32{
	"allow":  seccompAllow,
	"kill":   seccompKill,
	"EPERM":  seccompErrno | uint32(unix.EPERM),
	"ENOSYS": seccompErrno | uint32(unix.ENOSYS),
}

// rule says how a filter answers one system call.
type rule struct{ number, answer uint32 }

// readRules reads lines with the number of a system call and the answer to it.
func readRules(in io.Reader) ([]rule, error) {
	var rules []rule
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		number, name, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.ParseUint(number, 10, 32)
		answer, ok := answers[name]
		if err != nil || !ok {
			return nil, fmt.Errorf("%q is not the number of a system call and allow, kill, EPERM or ENOSYS", lines.Text())
		}
		rules = append(rules, rule{uint32(n), answer})
	}
	if lines.Err() == nil && len(rules) == 0 {
		return nil, errors.New("there is no system call in the list")
	}
	return rules, lines.Err()
}

// program returns a filter of system calls in the form that the kernel wants. Each listed call has its own comparison
// and return, because a conditional jump can skip at most 255 instructions.
func program(rules []rule, others uint32) []unix.SockFilter {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K
	)
	prog := []unix.SockFilter{{Code: load}}
	for _, r := range rules {
		prog = append(prog, unix.SockFilter{Code: equal, K: r.number, Jf: 1}, unix.SockFilter{Code: ret, K: r.answer})
	}
	return append(prog, unix.SockFilter{Code: ret, K: others})
}

// underFilter replaces this process by a command that runs under a filter of system calls. It returns only if that
// fails.
func underFilter(answer, file string, command []string) error {
	others, ok := answers[answer]
	if !ok {
		return fmt.Errorf("there is no answer %q: allow, kill, EPERM or ENOSYS", answer)
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	rules, err := readRules(f)
	f.Close()
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	prog := program(rules, others)
	p := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	// SAFETY: the kernel reads p and what it points to, and keeps a copy.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, seccompSetModeFilter, 0, uintptr(unsafe.Pointer(&p)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return fmt.Errorf("exec %s: %w", path, unix.Exec(path, command, os.Environ()))
}
