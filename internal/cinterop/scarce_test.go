//go:build linux

package cinterop

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
)

// scarceNeeds maps a verb to the kernel feature that it needs.
var scarceNeeds = map[string]*shmsync.Feature{"probes": shmsync.FeatureWaitV, "forbidden-waits": shmsync.FeatureWaitV, "probe-of-fences": shmsync.FeatureMembarrier, "late-fences": shmsync.FeatureMembarrier, "registered-open": shmsync.FeatureMembarrier}

// The system refuses descriptors, locks, memory or threads for a time. Meanwhile calls in C fail, and say why. When the
// system no longer refuses, the calls succeed.
func TestScarceInC(t *testing.T) {
	for _, verb := range []string{
		"first-open", "few-descriptors", "number-of-cpus", "one-descriptor", "no-locks", "no-gate", "other-proc", "strange-file-system", "no-threads", "last-thread", "last-close",
		"stuck-file", "no-flock", "sweep", "locked-memory", "guarded-block", "probes", "forbidden-waits", "probe-of-fences", "late-fences", "registered-open", "failed-open", "lost-addresses", "wrapped-permits", "quota", "lost-descriptors", "overflow-uid", "used-up", "failed-first", "other-entry", "own-namespace",
	} {
		t.Run(verb, func(t *testing.T) {
			if f := scarceNeeds[verb]; f != nil && !f.Have() {
				t.Skipf("needs the kernel feature %s: %v", f.Name(), f.Check())
			}
			runC(t, "scarce.c", verb, unusedName(t))
		})
	}
}

// TestRemoveOfASparseFileInCOnAFullFileSystem: a C program removes the sparse copy of an arena from a full file system.
func TestRemoveOfASparseFileInCOnAFullFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		t.Skipf("needs a tmpfs of its own, and this process may not mount one: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	runC(t, "scarce.c", "sparse-file", filepath.Join(dir, "jobs"))
}

// TestProcOfAnotherNamespaceInC checks a C program whose /proc belongs to another pid namespace. The program notices
// this even if it can open no file. It does not use what /proc says about its process ID.
func TestProcOfAnotherNamespaceInC(t *testing.T) {
	attr := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID, // no new mount namespace, so /proc is that of this process
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	proctest.NeedAttr(t, attr, "a user and a pid namespace")
	cmd := exec.Command(program(t, "scarce.c"), "other-namespace", unusedName(t))
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
