package shmsync

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// When a process ends, each of its threads first leaves the system call that it is in. Then the thread gives up the
// memory of the process: the kernel sets the thread's mm to NULL. The last thread that gives up the memory takes
// the memory apart, which takes 30 ms or more for each GiB, and then releases the locks of the process. When no
// thread has memory, no thread of the process executes an instruction, or is in a system call that copies into the
// memory.
//
// The link /proc/PID/task/TID/exe cannot be read if the thread has no memory, so it shows whether the thread has
// memory. Reading the link takes no reference to the memory. Reading most other files of /proc/PID takes a reference.
// If all threads give up the memory meanwhile, the reader has to take the memory apart.

// Detached reports whether every thread of a process has given up its memory. startTime is the start time of the
// process, field 22 of its /proc/PID/stat. If the number pid now belongs to another process, the result is false.
//
// The result is also false if it cannot be known: without /proc, with the /proc of another pid namespace, or without
// permission to trace the process. If the parent has already waited for the process, the result is false, too, but
// [NoProcess] returns true. If several processes share memory by clone(CLONE_VM), Detached reports only about the
// process with this pid.
func Detached(pid int, startTime uint64) bool {
	if pid <= 0 || !FeatureThreads.Have() {
		return false
	}
	d, err := openTasks(strconv.Itoa(pid))
	if err != nil {
		return false
	}
	defer d.close()
	return d.device() == ownProc.Load() && d.detached(pid, startTime)
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
// given to another process later. A pool keeps taskDirs for reuse, so that a process that waits for the end of a dead
// process does not also wait for an allocation.
type taskDir struct {
	fd            int
	st            unix.Stat_t
	buf           [4 << 10]byte // the last directory entries or text that the kernel returned
	first, second []int         // the results of two walks
}

var taskDirs = sync.Pool{New: func() any { return new(taskDir) }}

func openTasks(process string) (*taskDir, error) {
	fd, err := unix.Open("/proc/"+process+"/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	d := taskDirs.Get().(*taskDir)
	d.fd = fd
	if err := unix.Fstat(fd, &d.st); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// close ends the use of d.
func (d *taskDir) close() {
	unix.Close(d.fd)
	taskDirs.Put(d)
}

func (d *taskDir) device() uint64 { return uint64(d.st.Dev) } // Dev has 32 bits on mips

// same reports whether the descriptor still refers to this directory. A mistake elsewhere in the
// program may have closed it and opened another file with the same descriptor number.
func (d *taskDir) same() bool {
	var st unix.Stat_t
	return unix.Fstat(d.fd, &st) == nil && st.Dev == d.st.Dev && st.Ino == d.st.Ino
}

// detached reports whether every thread of the process with the task directory d has given up its
// memory. leader is the first thread of the process.
//
// If the leader is the only thread that is left, and has no memory, the process is detached. Many processes are
// already in this state when a survivor looks.
//
// Otherwise detached walks through the directory. A walk may miss threads, because it stops early
// if a thread ends meanwhile. A second walk and the kernel's count of threads show whether the
// first walk has found all threads:
//
//	first  := walk
//	no thread of first has memory            none of them can create a thread any more
//	count  := number of threads, exactly     the kernel counts under the lock of the list
//	second := walk
//	len(first ∩ second) == count             these threads existed at the count, and no others
//
// So no thread had memory at the time of the count. A thread without memory never gets memory
// again, and creates no thread.
func (d *taskDir) detached(leader int, startTime uint64) bool {
	if d.mayHaveMemory(leader) {
		return false
	}
	// Reading this file takes a reference to the memory of the leader if the leader has memory. The check above has
	// shown that the leader has none.
	stat, err := unix.Openat(d.fd, d.path(leader, "/stat"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(stat)
	switch count, size := d.count(stat, startTime); {
	case count == 0:
		return false
	case count == 1 && size == 0:
		return d.same() // one read shows that one thread is left, and that it has no memory
	}
	var ok bool
	if d.first, ok = d.walk(d.first[:0]); !ok {
		return false
	}
	for _, thread := range d.first {
		if d.mayHaveMemory(thread) {
			return false
		}
	}
	count, _ := d.count(stat, startTime)
	if _, err := unix.Seek(d.fd, 0, 0); err != nil || count == 0 {
		return false
	}
	d.second, ok = d.walk(d.second[:0])
	return ok && missedNone(d.first, d.second, count) && d.same()
}

// missedNone reports whether the first walk found all threads that existed before the second walk
// began. count is their number.
func missedNone(first, second []int, count int) bool {
	found := make(map[int]bool, len(first))
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

// path returns the path of a file of a thread, relative to d.
func (d *taskDir) path(thread int, file string) string {
	var b [32]byte
	return string(append(strconv.AppendInt(b[:0], int64(thread), 10), file...))
}

// mayHaveMemory returns false only if a thread has no memory. A thread that has ended has none.
func (d *taskDir) mayHaveMemory(thread int) bool {
	_, err := unix.Readlinkat(d.fd, d.path(thread, "/exe"), d.buf[:1])
	return err != unix.ENOENT && err != unix.ESRCH
}

const (
	mostThreads = 1 << 15 // the largest number of threads that a walk lists
	direntSize  = 19      // offset of the name in linux_dirent64
	direntMost  = 64      // larger than the directory entry of any thread
)

// walk appends the threads that the directory lists from its current position. It returns true if the kernel
// stopped although the buffer had room for another directory entry. Usually the kernel stops at the end of the list.
// If a thread ends meanwhile, or if this thread gets a signal, the kernel stops earlier. Then threads are missing from
// the result.
func (d *taskDir) walk(threads []int) ([]int, bool) {
	for len(threads) < mostThreads {
		n, err := unix.ReadDirent(d.fd, d.buf[:])
		if err != nil {
			return threads, false
		}
		for at := 0; at+direntSize < n; {
			size := int(binary.NativeEndian.Uint16(d.buf[at+16:]))
			if size <= direntSize || at+size > n {
				return threads, false
			}
			name, _, _ := bytes.Cut(d.buf[at+direntSize:at+size], []byte{0})
			if thread, err := strconv.Atoi(string(name)); err == nil {
				threads = append(threads, thread)
			}
			at += size
		}
		if n < len(d.buf)-direntMost {
			return threads, true
		}
	}
	return threads, false
}

// count returns the number of threads of the process. It returns 0 if the number is unknown, or if the process did
// not start at startTime. stat is the descriptor of the leader's stat file. size is 0 if the leader has no memory.
func (d *taskDir) count(stat int, startTime uint64) (count int, size uint64) {
	count, started, size, ok := d.stat(stat)
	if !ok || started != startTime || count < 1 {
		return 0, 0
	}
	return count, size
}

// stat reads the open stat file of a thread. It returns how many threads the process has, when the process started, and
// how many bytes of memory the thread can address.
func (d *taskDir) stat(fd int) (threads int, startTime, size uint64, ok bool) {
	n, err := unix.Pread(fd, d.buf[:1<<10], 0)
	if err != nil {
		return 0, 0, 0, false
	}
	// The name of the program, in parentheses, may contain any byte.
	_, rest, ok := bytes.Cut(d.buf[bytes.LastIndexByte(d.buf[:n], ')')+1:n], []byte(" "))
	const threadsField, startField, sizeField = 20, 22, 23
	for field := 3; ok; field++ { // the text in rest starts with field 3
		var value []byte
		value, rest, ok = bytes.Cut(rest, []byte(" "))
		switch field {
		case threadsField:
			if threads, err = strconv.Atoi(string(value)); err != nil {
				return 0, 0, 0, false
			}
		case startField:
			if startTime, err = strconv.ParseUint(string(value), 10, 64); err != nil {
				return 0, 0, 0, false
			}
		case sizeField:
			size, err = strconv.ParseUint(string(value), 10, 64)
			return threads, startTime, size, err == nil
		}
	}
	return 0, 0, 0, false
}

// ownProc is the device number of /proc, once probeThreads has accepted this /proc.
var ownProc atomic.Uint64

// probeThreads checks that /proc belongs to the pid namespace of this process, and that its files show that a
// living thread has memory. It also requires a kernel whose io_uring copies data only in threads of the process.
// Linux does so since 5.12, but no probe can show this. So probeThreads requires FeatureWaitV, a system call newer
// than 5.12.
func probeThreads() error {
	if err := FeatureWaitV.Check(); err != nil {
		return err
	}
	no := func(why string) error { return &Error{Op: "proc", Err: ErrNotSupported, Detail: why} }
	failed := func(err error) error {
		if isShortage(err) {
			return &Error{Op: "proc", Err: err} // it stays unknown what /proc shows
		}
		return no(err.Error())
	}
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return failed(err)
	}
	self := strconv.Itoa(unix.Getpid())
	if !onlyPID(b, self) {
		return no("/proc is not that of this pid namespace")
	}
	d, err := openTasks("self")
	if err != nil {
		return failed(err)
	}
	defer d.close()
	if _, err := unix.Readlinkat(d.fd, self+"/exe", d.buf[:1]); err != nil {
		return failed(err)
	}
	stat, err := unix.Openat(d.fd, self+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return failed(err)
	}
	defer unix.Close(stat)
	if _, _, _, ok := d.stat(stat); !ok {
		return no("/proc/self/task cannot be read")
	}
	ownProc.Store(d.device())
	return nil
}

// isShortage reports whether a call failed because there are too few file descriptors or too little memory now. Such a
// failure says nothing about /proc.
func isShortage(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// onlyPID reports whether status, the contents of /proc/self/status, lists pid as the only PID of the
// process. Such a file lists a further PID for each inner pid namespace that the process is in.
func onlyPID(status []byte, pid string) bool {
	for line := range bytes.Lines(status) {
		if pids, ok := bytes.CutPrefix(line, []byte("NSpid:")); ok {
			f := bytes.Fields(pids)
			return len(f) == 1 && string(f[0]) == pid
		}
	}
	return false
}
