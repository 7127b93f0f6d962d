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

// Quota is a cgroup whose processes get a share of the CPUs' time.
type Quota struct {
	dir  string
	lent string // the directory in which the controller was enabled for it; empty if none
}

const (
	cgroupRoot   = "/sys/fs/cgroup"
	quotaPeriod  = 100_000 // µs, the kernel's default
	quotaPercent = quotaPeriod / 100
)

var quotas atomic.Int64 // counts the cgroups of this process, for their names

// NewQuota makes a cgroup below that of this process: in version 2, or else in the cpu controller
// of version 1.
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

// ownCgroups returns this process's path in the hierarchy of version 2, and in the cpu controller
// of version 1; a path is empty if there is none.
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

// fileSystem is the type of the file system at a place; 0 if there is none.
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
		// The kernel refuses to hand the controller on while this process is in the cgroup,
		// unless that is the root.
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

// writeExisting writes to an existing file of the kernel and never creates one.
func writeExisting(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Join puts a process under the quota.
func (q *Quota) Join(pid int) error {
	return writeExisting(filepath.Join(q.dir, "cgroup.procs"), strconv.Itoa(pid))
}

// Remove removes the cgroup after its processes have ended. The kernel may take a moment to
// notice their end.
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

// QuotaCheck says why this process can have no quota, and returns nil if it can.
var QuotaCheck = sync.OnceValue(func() error {
	q, err := NewQuota(100)
	if err != nil {
		return fmt.Errorf("needs a cgroup with a quota: %w", err)
	}
	q.Remove()
	return nil
})
