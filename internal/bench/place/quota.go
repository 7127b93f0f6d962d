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
	lent string // where the controller was switched on for it; empty: nowhere
}

const (
	cgroupRoot   = "/sys/fs/cgroup"
	quotaPeriod  = 100_000 // µs, as the kernel's default
	quotaPercent = quotaPeriod / 100
)

var quotas atomic.Int64 // numbers the cgroups of this process

// NewQuota makes one below the cgroup of this process, of version 2, or else of the
// first version's cpu controller.
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

// ownCgroups gives this process's path in the hierarchy of version 2, and in that of the
// first version's cpu controller; empty where it has none.
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

// fileSystem is the kind of what is mounted at a place; 0 if there is nothing.
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
		// Where this process is in the cgroup that is to hand the controller on, the
		// kernel refuses, except in the root.
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

// writeExisting writes to a file of the kernel's: it must not come into being.
func writeExisting(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Join has a process be under the quota.
func (q *Quota) Join(pid int) error {
	return writeExisting(filepath.Join(q.dir, "cgroup.procs"), strconv.Itoa(pid))
}

// Remove takes the cgroup away, whose processes have ended. The kernel may need a moment
// to notice.
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

// QuotaCheck says why this process can have no quota; nil where it can.
var QuotaCheck = sync.OnceValue(func() error {
	q, err := NewQuota(100)
	if err != nil {
		return fmt.Errorf("needs a cgroup with a quota: %w", err)
	}
	q.Remove()
	return nil
})
