//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/bench/report"
	"github.com/shmsync/shmsync/internal/proctest"
)

// A run that is killed leaves no worker and no file. To detect workers, all processes of the run inherit the write
// end of a pipe. A read from the pipe ends when the last of these processes has ended.
func TestKilledRunLeavesNothing(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	temp, cache := t.TempDir(), t.TempDir()
	cmd := exec.Command(self, "lock", "--prim=shmsync:mutex", "--place=any", "--threads=1", "--time=5ms", "--warmup=1ms", "--count=100000", "--cc=none", "-v")
	cmd.Env = append(os.Environ(), "SHMBENCH_WORKER=1", "TMPDIR="+temp, "XDG_CACHE_HOME="+cache)
	for range 20 { // many, because a worker gets its own files in place of the first ones
		cmd.ExtraFiles = append(cmd.ExtraFiles, w)
	}
	errs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	w.Close()
	lines := bufio.NewScanner(errs)
	for lines.Scan() && !strings.Contains(lines.Text(), "lock/by=shmsync") {
	}
	require.NoError(t, cmd.Process.Kill())
	require.Contains(t, lines.Text(), "lock/by=shmsync", "a repetition has ended, and the next one begins")
	_, _ = io.Copy(io.Discard, errs)
	_ = cmd.Wait()
	require.NoError(t, r.SetReadDeadline(time.Now().Add(2*time.Minute)))
	_, err = io.Copy(io.Discard, r)
	require.NoError(t, err, "a process of the killed run lives on")
	for _, dir := range []string{temp, cache} {
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

// A run that is killed leaves a result file that says that the run did not end. Each command that reads the file says
// so, too.
func TestKilledRunLeavesItsFile(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	out := filepath.Join(dir, "run.json")
	require.NoError(t, os.WriteFile(out, []byte("an older file"), 0o600))
	cmd := exec.Command(self, "lock", "--prim=shmsync:mutex", "--place=any", "--threads=1", "--time=5ms", "--warmup=1ms", "--count=100000", "--cc=none", "-v", "--out", out)
	cmd.Env = append(os.Environ(), "SHMBENCH_WORKER=1")
	errs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(errs)
	for lines.Scan() && !strings.Contains(lines.Text(), "lock/by=shmsync") {
	}
	require.NoError(t, cmd.Process.Kill())
	_, _ = io.Copy(io.Discard, errs)
	_ = cmd.Wait()
	b, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, report.StateRunning, parseDocument(t, string(b)).State)
	// The file is replaced every few seconds. A kill at that moment leaves an unfinished new file, which the next run
	// replaces.
	if err := os.Remove(out + ".part"); !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "and no other file")
	for _, command := range [][]string{{"recommend", out}, {"export", out}, {"compare", out, out}, {"report", out}} {
		_, page, errs := shmbench(t, command...)
		require.Contains(t, page+errs, "repetitions were made", command[0])
	}
}

// A directory with too little space for an arena is refused with a message before anything is measured. Without
// --arena, no measurement needs such a directory.
func TestSmallArenaDirectory(t *testing.T) {
	if out, err := exec.Command("unshare", "-rm", "true").CombinedOutput(); err != nil {
		t.Skipf("needs unshare -rm, which makes a user and a mount namespace: %v: %s", err, out)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	run := func(args ...string) (string, error) {
		const script = `mount -t tmpfs -o size=64k none "$0" && exec "$@"`
		cmd := exec.Command("unshare", append([]string{"-rm", "sh", "-c", script, "/dev/shm", self}, patient(args)...)...)
		cmd.Env = append(os.Environ(), "SHMBENCH_WORKER=1")
		b, err := cmd.CombinedOutput()
		return string(b), err
	}
	out, err := run("uncontended", "--prim=shmsync:mutex", "--time=5ms", "--count=1", "--cc=none", "--arena=/dev/shm")
	require.Error(t, err)
	require.Contains(t, out, `--arena "/dev/shm": 64 KiB are free, and a cell needs 9 MiB`)
	require.NotContains(t, out, "plan:")
	out, err = run("uncontended", "--prim=shmsync:mutex", "--time=5ms", "--count=1", "--cc=none")
	require.NoError(t, err, out)
	require.Contains(t, out, "shmsync:mutex")
}

// The peers in C run even if the home directory cannot be written.
func TestHomeThatCannotBeWritten(t *testing.T) {
	proctest.CCompiler(t)
	self, err := os.Executable()
	require.NoError(t, err)
	for _, home := range []string{"/proc", filepath.Join(t.TempDir(), "none"), ""} {
		cmd := exec.Command(self, "uncontended", "--prim=c:futex", "--time=5ms", "--count=1", "--format=json", "--timeout=1m")
		cmd.Env = append(os.Environ(), "SHMBENCH_WORKER=1", "HOME="+home, "XDG_CACHE_HOME=", "TMPDIR="+t.TempDir())
		out, err := cmd.Output()
		require.NoError(t, err, home)
		for _, c := range parseDocument(t, string(out)).Cells {
			require.Equal(t, bench.StatusOK, c.Status, "HOME=%s: %s", home, c.Reason)
		}
	}
}

// In a cgroup with little CPU time, a run says so, and still measures the library and its peers.
func TestRunUnderAQuota(t *testing.T) {
	proctest.CCompiler(t)
	if err := place.QuotaCheck(); err != nil {
		proctest.Missing(t, "SHMSYNC_NEED_QUOTA", fmt.Sprintf("needs a cgroup of its own, for a quota of CPU time: %v", err))
	}
	q, err := place.NewQuota(30)
	require.NoError(t, err)
	defer q.Remove()
	self, err := os.Executable()
	require.NoError(t, err)
	out := filepath.Join(t.TempDir(), "run.json")
	cmd := exec.Command("sh", "-c", `read joined && exec "$@"`, "sh", self, "handoff", "--prim=c:futex,go:pipe,shmsync:futex", "--place=same", "--gap=100us",
		"--time=10ms", "--warmup=1ms", "--count=1", "--timeout=2m", "--out", out)
	cmd.Env = append(os.Environ(), "SHMBENCH_WORKER=1")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	require.NoError(t, cmd.Start())
	require.NoError(t, q.Join(cmd.Process.Pid))
	_, err = io.WriteString(in, "\n")
	require.NoError(t, err)
	require.NoError(t, cmd.Wait(), text.String())
	require.Contains(t, text.String(), "the cgroup gives this run the time of 0.")
	b, err := os.ReadFile(out)
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, c := range parseDocument(t, string(b)).Cells {
		require.Equal(t, bench.StatusOK, c.Status, "%s: %s", c.Key, c.Reason)
		seen[c.Subject] = true
	}
	require.Len(t, seen, 3)
}

// On one CPU the default plan has cells. It gives one reason for all cells that it omits because they need another
// CPU.
func TestDefaultPlanOnOneCPU(t *testing.T) {
	cpus, err := place.AllowedCPUs()
	require.NoError(t, err)
	code, out, errs := shmbench(t, "--cpus="+place.JoinInts(cpus[:1]), "-n")
	require.Zero(t, code, errs)
	cells, left := 0, 0
	for line := range strings.Lines(out) {
		switch _, why, skipped := strings.Cut(line, "skipped: "); {
		case !strings.Contains(line, "/by="):
		case !skipped:
			cells++
		case strings.Contains(line, "place="):
			left++
			require.Equal(t, "needs two CPUs\n", why)
		}
	}
	require.Greater(t, cells, 40)
	require.Greater(t, left, 40)
}
