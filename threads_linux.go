package shmsync

import (
	"bytes"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// When a process ends, each of its threads first leaves the system call that it is in, and then gives up the memory of
// the process: the kernel sets the thread's mm to NULL. The last thread that does so takes the memory apart, which
// takes 30 ms or more for each GiB, and then releases the locks of the process. When no thread has memory, no thread of
// the process executes an instruction, or is in a system call that copies into the memory.
//
// The link /proc/PID/task/TID/exe shows whether that thread has memory, because the link cannot be read if the thread
// has none. Reading the link takes no reference to the memory. Reading most other files of /proc/PID does. Then the
// reader may become the last user of the memory, and has to take the memory apart itself.

// Detached reports whether every thread of a process has given up its memory. startTime is the
// start time of the process, field 22 of its /proc/PID/stat. If the number now belongs to another
// process, the result is false.
//
// The result is also false if it cannot be known: without /proc, with the /proc of another pid
// namespace, without permission to trace the process, or if the parent has already waited for the
// process. [NoProcess] recognizes the last case. If several processes share memory by
// clone(CLONE_VM), Detached reports only about the one with this pid.
func Detached(pid int, startTime uint64) bool {
	if pid <= 0 || !FeatureThreads.Have() {
		return false
	}
	d, err := openTasks(strconv.Itoa(pid))
	if err != nil {
		return false
	}
	defer d.close()
	return d.device() == ownProc() && d.detached(strconv.Itoa(pid), startTime)
}

// NoProcess reports whether no process in the pid namespace of this process has the ID pid. An ID belongs to a process
// until all threads of the process have given up their memory and its parent has waited for it. So if the result is
// true, a process that had the ID is detached.
//
// NoProcess returns false if [FeatureThreads] is missing.
func NoProcess(pid int) bool {
	return pid > 0 && FeatureThreads.Have() && unix.Kill(pid, 0) == unix.ESRCH
}

// taskDir is an open directory /proc/PID/task. All look-ups in it concern the same process, even if the number PID is
// given to another process later.
type taskDir struct {
	fd  int
	st  unix.Stat_t
	buf []byte
}

func openTasks(process string) (*taskDir, error) {
	fd, err := unix.Open("/proc/"+process+"/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	d := &taskDir{fd: fd}
	if err := unix.Fstat(fd, &d.st); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return d, nil
}

func (d *taskDir) close() { unix.Close(d.fd) }

func (d *taskDir) device() uint64 { return uint64(d.st.Dev) } // Dev has 32 bits on mips

// same reports whether the descriptor still refers to this directory. A mistake elsewhere in the
// program may have closed it and opened another file with the same descriptor number.
func (d *taskDir) same() bool {
	var st unix.Stat_t
	return unix.Fstat(d.fd, &st) == nil && st.Dev == d.st.Dev && st.Ino == d.st.Ino
}

// detached does what Detached does, for the process whose task directory is d. The first thread of
// that process is the thread leader.
//
// A walk through the directory may miss threads, because it stops early if a thread ends meanwhile.
// A second walk and the kernel's count of threads show whether the first walk has found all
// threads:
//
//	first  := walk
//	no thread of first has memory            none of them can create a thread any more
//	count  := number of threads, exactly     the kernel counts under the lock of the list
//	second := walk
//	first and second have count in common    these existed at the count, and there were no others
//
// So no thread had memory at the time of the count. A thread without memory never gets memory
// again, and creates no thread.
func (d *taskDir) detached(leader string, startTime uint64) bool {
	if d.mayHaveMemory(leader) {
		return false
	}
	first, ok := d.walk()
	if !ok {
		return false
	}
	for _, thread := range first {
		if d.mayHaveMemory(thread) {
			return false
		}
	}
	// Reading this file takes a reference to the memory of the leader, if the leader has memory. The walks have shown
	// that it has none.
	count, started, ok := d.stat(leader)
	if !ok || started != startTime || count < 1 {
		return false
	}
	second, ok := d.walk()
	return ok && missedNone(first, second, count) && d.same()
}

// missedNone reports whether the first walk found all threads that existed before the second walk
// began. count is their number.
func missedNone(first, second []string, count int) bool {
	found := make(map[string]bool, len(first))
	for _, thread := range first {
		found[thread] = true
	}
	for _, thread := range second {
		if found[thread] {
			delete(found, thread)
			count--
		}
	}
	return count == 0
}

// mayHaveMemory reports whether a thread has memory, or whether that is unknown. A thread that has
// ended has none.
func (d *taskDir) mayHaveMemory(thread string) bool {
	var b [1]byte
	_, err := unix.Readlinkat(d.fd, thread+"/exe", b[:])
	return err != unix.ENOENT && err != unix.ESRCH
}

// mostThreads is the largest number of threads that a walk lists.
const mostThreads = 1 << 15

// walk returns the names of the threads that the directory lists. It may miss threads if one ends meanwhile.
func (d *taskDir) walk() (threads []string, ok bool) {
	if _, err := unix.Seek(d.fd, 0, 0); err != nil {
		return nil, false
	}
	if d.buf == nil {
		d.buf = make([]byte, 8<<10)
	}
	for len(threads) < mostThreads {
		n, err := unix.ReadDirent(d.fd, d.buf)
		if err != nil || n == 0 {
			return threads, err == nil
		}
		_, _, threads = unix.ParseDirent(d.buf[:n], -1, threads)
	}
	return nil, false
}

// stat returns how many threads the process has, and when it started.
func (d *taskDir) stat(leader string) (threads int, startTime uint64, ok bool) {
	b := make([]byte, 1<<10)
	fd, err := unix.Openat(d.fd, leader+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, false
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, b)
	if err != nil {
		return 0, 0, false
	}
	// The name of the program, in parentheses, may contain any byte.
	_, rest, ok := bytes.Cut(b[bytes.LastIndexByte(b[:n], ')')+1:n], []byte(" "))
	fields := bytes.Fields(rest)
	const threadsField, startField = 20 - 3, 22 - 3 // the rest starts with field 3
	if !ok || len(fields) <= startField {
		return 0, 0, false
	}
	threads, err = strconv.Atoi(string(fields[threadsField]))
	if err != nil {
		return 0, 0, false
	}
	startTime, err = strconv.ParseUint(string(fields[startField]), 10, 64)
	return threads, startTime, err == nil
}

// ownProc returns the device of the /proc that probeThreads has accepted.
var ownProc = sync.OnceValue(func() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/task", &st) != nil {
		return 0
	}
	return uint64(st.Dev)
})

// probeThreads checks that /proc belongs to the pid namespace of this process, and that the files there show that a
// living thread has memory. The kernel must also be one whose io_uring copies data only in threads of the process, as
// Linux does since 5.12. No probe can show that. So probeThreads checks instead for a system call that is newer than
// 5.12.
func probeThreads() error {
	if err := FeatureWaitV.Check(); err != nil {
		return err
	}
	no := func(why string) error { return &Error{Op: "proc", Err: ErrNotSupported, Detail: why} }
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return no(err.Error())
	}
	self := strconv.Itoa(unix.Getpid())
	if !onlyPID(b, self) {
		return no("/proc is not that of this pid namespace")
	}
	d, err := openTasks("self")
	if err != nil {
		return no(err.Error())
	}
	defer d.close()
	var link [1]byte
	if _, err := unix.Readlinkat(d.fd, self+"/exe", link[:]); err != nil {
		return no(err.Error())
	}
	if _, _, ok := d.stat(self); !ok || d.device() != ownProc() {
		return no("/proc/self/task cannot be read")
	}
	return nil
}

// onlyPID reports whether status, the contents of /proc/self/status, says that the process has that
// pid, and no other pid in an inner namespace.
func onlyPID(status []byte, pid string) bool {
	for line := range bytes.Lines(status) {
		if pids, ok := bytes.CutPrefix(line, []byte("NSpid:")); ok {
			f := bytes.Fields(pids)
			return len(f) == 1 && string(f[0]) == pid
		}
	}
	return false
}
