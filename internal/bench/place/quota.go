//go:build linux

package place

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Quota is a cgroup that limits the CPU time of its processes.
type Quota struct {
	dir  string
	lent string // the file in which NewQuota enabled the controller for this cgroup; empty if the controller was enabled already
}

const (
	cgroupRoot   = "/sys/fs/cgroup"
	quotaPeriod  = 100_000 // µs, the kernel's default
	quotaPercent = quotaPeriod / 100
)

var quotas atomic.Int64 // counts the cgroups of this process, for their names

// NewQuota creates a cgroup below the cgroup of this process. It uses cgroups of version 2, or else the cpu controller
// of version 1. All processes of the cgroup together get the given percentage of one CPU.
func NewQuota(percent int) (q *Quota, err error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	unified, cpu := ownCgroups(string(own))
	if unified != "" && fileSystem(cgroupRoot) == unix.CGROUP2_SUPER_MAGIC {
		q, err = makeQuota(filepath.Join(cgroupRoot, unified), "cpu.max", fmt.Sprintf("%d %d", percent*quotaPercent, quotaPeriod))
	} else if dir := filepath.Join(cgroupRoot, "cpu"); cpu != "" && fileSystem(dir) == unix.CGROUP_SUPER_MAGIC {
		q, err = makeQuota(filepath.Join(dir, cpu), "cpu.cfs_quota_us", strconv.Itoa(percent*quotaPercent))
	} else {
		return nil, errors.New("none has a cpu controller here")
	}
	return q, err
}

// ownCgroups returns the cgroup of this process as a path in the hierarchy of version 2, and as a path in the cpu
// controller of version 1. A path is empty if the host does not have that version.
func ownCgroups(text string) (unified, cpu string) {
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(fields) < 3:
		case fields[0] == "0" && fields[1] == "":
			unified = fields[2]
		case fields[1] == "cpu" || fields[1] == "cpu,cpuacct":
			cpu = fields[2]
		}
	}
	return unified, cpu
}

// fileSystem returns the type of the file system at a path, or 0 if the path does not exist.
func fileSystem(name string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(name, &st); err != nil {
		return 0
	}
	return int64(st.Type)
}

func makeQuota(parent, file, limit string) (q *Quota, err error) {
	q = &Quota{dir: filepath.Join(parent, fmt.Sprintf("shmbench-%d-%d", os.Getpid(), quotas.Add(1)))}
	if err := os.Mkdir(q.dir, 0o755); err != nil {
		return nil, fmt.Errorf("this process may not make one: %w", err)
	}
	if _, err := os.Stat(filepath.Join(q.dir, file)); err != nil {
		// The kernel refuses this write while the parent cgroup contains processes, such as this one. Only the root
		// cgroup is exempt.
		control := filepath.Join(parent, "cgroup.subtree_control")
		if err := writeExisting(control, "+cpu"); err != nil {
			q.Remove()
			return nil, fmt.Errorf("one below this process's has no cpu controller: %w", err)
		}
		q.lent = control
	}
	if err := writeExisting(filepath.Join(q.dir, file), limit); err != nil {
		q.Remove()
		return nil, err
	}
	return q, nil
}

// writeExisting writes to a file of the kernel. It does not create the file if it does not exist.
func writeExisting(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Join moves a process to the cgroup, so that the quota applies to the process.
func (q *Quota) Join(pid int) error {
	return writeExisting(filepath.Join(q.dir, "cgroup.procs"), strconv.Itoa(pid))
}

// Remove removes the cgroup. Its processes have ended, but the kernel may take a moment to notice that.
func (q *Quota) Remove() {
	for range 1000 {
		if os.Remove(q.dir) == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if q.lent != "" {
		writeExisting(q.lent, "-cpu")
	}
}

// QuotaCheck returns an error that says why this process cannot create a cgroup with a quota, or nil.
var QuotaCheck = sync.OnceValue(func() error {
	q, err := NewQuota(100)
	if err != nil {
		return fmt.Errorf("needs a cgroup with a quota: %w", err)
	}
	q.Remove()
	return nil
})
