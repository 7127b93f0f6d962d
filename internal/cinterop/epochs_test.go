//go:build linux

package cinterop

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
)

// epochProcesses is PROCESSES of testdata/epochs.c.
const epochProcesses = 6

// epochsEnv is the environment variable with the arguments of testdata/epochs.c, for a process of this test.
const epochsEnv = "SHMSYNC_TEST_EPOCHS"

// joinForever does the same as testdata/epochs.c.
func joinForever(args []string) {
	name, witness := args[0], args[1]
	self, err := strconv.Atoi(args[2])
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	check(err)
	f, err := os.OpenFile(witness, os.O_RDWR, 0)
	check(err)
	w, err := mapWords(f)
	check(err)
	opts := &arena.Options{Size: 1 << 20, MaxParticipants: 16}
	if args[3] == "ephemeral" {
		opts.Lifetime = arena.LifetimeEphemeral
	}
	opts.OnFirst = func(_ *arena.Arena, e arena.Epoch) error {
		for k := range epochProcesses {
			pid := w[k].Load()
			if k != self && pid != 0 && hasMemory(pid) && w[k].Load() == pid {
				check(fmt.Errorf("process %d begins epoch %d while %d is in", self, e.Number, k))
			}
		}
		stay(100)
		w[self].Store(uint32(os.Getpid())) // until this word changes, no other process may begin an epoch
		w[epochProcesses+1].Add(1)
		return nil
	}
	for {
		a, err := arena.Open(name, opts)
		check(err)
		w[self].Store(uint32(os.Getpid()))
		w[epochProcesses].Add(1)
		if rand.IntN(8) == 0 { // rarely, because long stays would leave few epochs
			stay(1000)
		}
		w[self].Store(0)
		check(a.Close())
	}
}

// stay yields the CPU fewer than n times, at random.
func stay(n int) {
	for range rand.IntN(n) {
		runtime.Gosched()
		unix.Getppid()
	}
}

// hasMemory reports whether a process still has memory. Without memory it holds no byte lock.
func hasMemory(pid uint32) bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	pages, _, _ := strings.Cut(string(b), " ")
	n, _ := strconv.Atoi(pages)
	return n != 0
}

// Processes in Go and C join and leave all the time, and half of them are killed. The first participant of an
// epoch never finds another process in.
func TestFirstIsAloneUnderKills(t *testing.T) {
	for _, lifetime := range []arena.Lifetime{arena.LifetimeDurable, arena.LifetimeEphemeral} {
		t.Run([]string{"durable", "ephemeral"}[lifetime], func(t *testing.T) {
			killJoiners(t, lifetime)
		})
	}
}

func killJoiners(t *testing.T, lifetime arena.Lifetime) {
	kills := proctest.Rounds(20, 800)
	name := unusedName(t)
	c := program(t, "epochs.c")
	witness := filepath.Join(t.TempDir(), "witness")
	require.NoError(t, os.WriteFile(witness, make([]byte, 4096), 0o600))
	f, err := os.OpenFile(witness, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	w, err := mapWords(f)
	require.NoError(t, err)

	self, err := os.Executable()
	require.NoError(t, err)
	var procs [epochProcesses]*exec.Cmd
	var says [epochProcesses]*strings.Builder
	start := func(k int) {
		args := []string{name, witness, strconv.Itoa(k), []string{"durable", "ephemeral"}[lifetime]}
		cmd := exec.Command(c, args...)
		if k%2 == 0 {
			cmd = exec.Command(self)
			cmd.Env = append(os.Environ(), epochsEnv+"="+strings.Join(args, " "))
		}
		says[k] = new(strings.Builder)
		cmd.Stderr = says[k]
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill() })
		procs[k] = cmd
	}
	kill := func(k int) {
		procs[k].Process.Kill()
		err := procs[k].Wait()
		var exit *exec.ExitError
		require.True(t, errors.As(err, &exit))
		require.True(t, exit.Sys().(syscall.WaitStatus).Signaled(), "%v: %s", err, says[k])
	}
	for k := range epochProcesses {
		start(k)
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range kills {
		end := time.Now().Add(timeout)
		want := w[epochProcesses].Load() + rng.Uint32N(6)
		for tick := time.NewTicker(100 * time.Microsecond); w[epochProcesses].Load() < want; <-tick.C {
			require.True(t, time.Now().Before(end), "nobody joins: %v joins", w[epochProcesses].Load())
		}
		k := rng.IntN(epochProcesses)
		kill(k)
		start(k)
	}
	for k := range epochProcesses {
		kill(k)
	}
	t.Logf("seed %d: %d joins, %d kills, %d epochs", seed, w[epochProcesses].Load(), kills+epochProcesses, w[epochProcesses+1].Load())
	// All that is left is an arena without participants.
	if err := arena.Remove(name); lifetime == arena.LifetimeDurable {
		require.NoError(t, err)
	} else {
		require.True(t, err == nil || errors.Is(err, fs.ErrNotExist), "%v", err)
	}
}
