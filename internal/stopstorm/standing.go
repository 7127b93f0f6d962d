//go:build linux

package stopstorm

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// standing says where in the code of the library the threads of a stopped worker are. A worker in Go runs the same
// program as this process, so this process can look up the addresses in its own program.
func (s *storm) standing(number int) string {
	pid := s.procs[number].pid()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err.Error()
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return err.Error()
	}
	defer mem.Close()
	at, frames := loadedAt(pid), goFrames
	if s.inC(number) {
		frames = s.program.frames // addresses in the program begin at 0, because it is position-independent
	} else {
		at -= loadedAt(os.Getpid())
	}
	var places []string
	for _, task := range tasks {
		if place := threadStands(fmt.Sprintf("/proc/%d/task/%s/syscall", pid, task.Name()), mem, at, frames); place != "" && !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	if len(places) == 0 {
		return "at no place in the library that is known: its thread sleeps, or its goroutine has none"
	}
	slices.Sort(places)
	return strings.Join(places, "; ")
}

// threadStands returns the innermost functions of this module that a thread is executing. If the thread executes none,
// or sleeps in the kernel, it returns an empty string.
//
// The kernel reports the instruction and the stack pointer of a stopped thread. The return addresses are taken from
// the words of its stack, so some of them may be old.
func threadStands(file string, mem *os.File, shift uintptr, frames func(pc uintptr) []string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	f := strings.Fields(string(b))
	if len(f) < 3 || f[0] != "-1" { // "-1 SP PC" says that the thread was stopped outside of a system call
		return ""
	}
	sp, err1 := strconv.ParseUint(f[1], 0, 64)
	pc, err2 := strconv.ParseUint(f[2], 0, 64)
	if err1 != nil || err2 != nil {
		return ""
	}
	stack := make([]byte, 1024)
	n, _ := mem.ReadAt(stack, int64(sp))
	found := frames(uintptr(pc) - shift)
	for i := 0; i+8 <= n; i += 8 {
		// A return address is that of the instruction after the call, so subtract 1 to get an address within the call.
		found = append(found, frames(uintptr(binary.LittleEndian.Uint64(stack[i:]))-shift-1)...)
	}
	return strings.Join(found[:min(len(found), 4)], " < ")
}

// goFrames returns the functions of this module at an address of this program. An inlined function comes before its
// caller.
func goFrames(pc uintptr) (frames []string) {
	if runtime.FuncForPC(pc) == nil {
		return nil
	}
	for it := runtime.CallersFrames([]uintptr{pc + 1}); ; {
		frame, more := it.Next()
		if name := frame.Function; strings.Contains(name, "shmsync") && !strings.Contains(name, "stopstorm") && !strings.Contains(name, "/cmd/") && !strings.Contains(name, "/bench/") {
			frames = append(frames, fmt.Sprintf("%s %s:%d", filepath.Base(name), filepath.Base(frame.File), frame.Line))
		}
		if !more {
			return frames
		}
	}
}

// loadedAt returns the address at which the program of a process is loaded.
func loadedAt(pid int) uintptr {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0
	}
	from, _, _ := strings.Cut(string(b), "-")
	at, _ := strconv.ParseUint(from, 16, 64)
	return uintptr(at)
}
