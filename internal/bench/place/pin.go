//go:build linux

package place

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// AllowedCPUs lists the CPUs that this process may run on.
func AllowedCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	var cpus []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// PinThread confines the thread with the ID tid, or the calling thread if tid is 0, to the given CPUs.
func PinThread(tid int, cpus ...int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	return os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(tid, &set))
}

// PinProcess confines every thread of this process to the given CPUs. A new thread inherits the CPUs of its
// creator, which may not be confined yet. Therefore PinProcess goes over all threads again until it finds no new
// thread.
func PinProcess(cpus ...int) error {
	confined := map[string]bool{}
	for {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		found := false
		for _, t := range tasks {
			if confined[t.Name()] {
				continue
			}
			found, confined[t.Name()] = true, true
			tid, err := threadID(t.Name())
			if err == nil {
				err = PinThread(tid, cpus...)
			}
			if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.ENOENT) { // these two errors mean that the thread has ended
				return err
			}
		}
		if !found {
			return nil
		}
	}
}

// threadID returns the ID of a thread in the PID namespace of this process. The parameter task is the name of the
// thread in /proc/self/task. If /proc belongs to an outer namespace, that name is the thread's ID in the outer
// namespace. The line NSpid then has the ID of the inner namespace in its last column.
func threadID(task string) (int, error) {
	text, err := os.ReadFile("/proc/self/task/" + task + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			if all := strings.Fields(ids); len(all) > 0 {
				return strconv.Atoi(all[len(all)-1])
			}
		}
	}
	return strconv.Atoi(task) // a kernel without namespaces
}
