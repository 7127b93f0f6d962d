//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// quota is a cgroup whose processes get a share of the CPUs' time.
type quota struct {
	dir  string
	lent string   // where the controller was switched on for it; empty: nowhere
	file *os.File // the directory, for clone3
}

const (
	cgroupRoot   = "/sys/fs/cgroup"
	quotaPeriod  = 100_000 // µs, as the kernel's default
	quotaPercent = quotaPeriod / 100
)

var quotas atomic.Int64 // numbers the cgroups of this process

// newQuota makes one below the cgroup of this process.
func newQuota(percent int) (q *quota, err error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	path, ok := "", false
	for line := range strings.Lines(string(own)) {
		if p, found := strings.CutPrefix(strings.TrimSpace(line), "0::"); found {
			path, ok = p, true
		}
	}
	if !ok {
		return nil, errors.New("no cgroup of version 2")
	}
	parent := filepath.Join(cgroupRoot, path)
	dir := filepath.Join(parent, fmt.Sprintf("shmbench-%d-%d", os.Getpid(), quotas.Add(1)))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("no cgroup of its own: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(dir)
		}
	}()
	lent := ""
	limit := filepath.Join(dir, "cpu.max")
	if _, err := os.Stat(limit); err != nil {
		// Where this process is in the cgroup that is to hand the controller on, the
		// kernel refuses, except in the root.
		control := filepath.Join(parent, "cgroup.subtree_control")
		if err := os.WriteFile(control, []byte("+cpu"), 0); err != nil {
			return nil, fmt.Errorf("a cgroup below %s has no cpu controller: %w", path, err)
		}
		lent = control
	}
	if err := os.WriteFile(limit, fmt.Appendf(nil, "%d %d", percent*quotaPercent, quotaPeriod), 0); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return &quota{dir, lent, f}, nil
}

// remove takes the cgroup away, whose processes have ended. The kernel may need a moment
// to notice.
func (q *quota) remove() {
	q.file.Close()
	for range 100 {
		if os.Remove(q.dir) == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if q.lent != "" {
		os.WriteFile(q.lent, []byte("-cpu"), 0)
	}
}

// quotaCheck says why this process can have no quota; nil where it can.
var quotaCheck = sync.OnceValue(func() error {
	q, err := newQuota(100)
	if err != nil {
		return fmt.Errorf("needs a cgroup with a quota: %w", err)
	}
	q.remove()
	return nil
})
