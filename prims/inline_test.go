//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// goTool runs the go command in this directory.
func goTool(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command")
	}
	key := strings.Join(args, " ")
	if out, ok := goToolSaid[key]; ok {
		return out
	}
	out, err := exec.Command("go", args...).CombinedOutput()
	require.NoError(t, err, "go %v: %s", args, out)
	goToolSaid[key] = string(out)
	return string(out)
}

// goToolSaid has what the go command printed, by its arguments: several tests ask for the same
// compilation. None of them is parallel.
var goToolSaid = map[string]string{}

// The fast paths of taking a lock are inlined into their callers, and that of a
// biased release into Unlock.
func TestInlining(t *testing.T) {
	out := goTool(t, "build", "-gcflags=-m=2", ".")
	for _, f := range []string{"(*Mutex).Lock", "(*Mutex).LockContext", "(*Mutex).TryLock",
		"(*CohortMutex).Lock", "(*CohortMutex).LockContext", "(*CohortMutex).TryLock", "(*CohortMutex).Unlock", "(*Futex).Get", "(*Futex).Wait", "releaseBiased"} {
		require.Regexp(t, `can inline `+regexp.QuoteMeta(f)+` with cost`, out)
	}
	require.Contains(t, out, "inlining call to releaseBiased")
	// Functions that are to be out of the way stay out of line.
	for _, f := range []string{"(*Mutex).lockSlow", "(*Mutex).unlockSlow", "(*Mutex).lockOrPanic"} {
		require.Regexp(t, `cannot inline `+regexp.QuoteMeta(f)+`:`, out)
	}
}

// In the machine code of Unlock on amd64, the store of 0 to the owner word is a
// plain one, comes after the load that tells whose hold it is, and before the
// load of the wake word. Nothing in the memory model of Go keeps it there.
func TestReleaseOrder(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("needs amd64: Unlock has the plain store only there")
	}
	built := filepath.Join(t.TempDir(), "prims.a")
	goTool(t, "build", "-o", built, ".")
	out := goTool(t, "tool", "objdump", "-s", `prims\.\(\*Mutex\)\.Unlock$`, built)
	require.NoError(t, releaseOrder(out), "%s", out)
}

var (
	ownerStore = regexp.MustCompile(`^MOVL \$0x0, 0\(\w+\)$`)
	wordLoad   = regexp.MustCompile(`^(MOVL 0\(\w+\), \w+|(TESTB|TESTL|BTL) \$0x[01], 0\(\w+\))$`)
	comparison = regexp.MustCompile(`^CMPL `)
	barrier    = regexp.MustCompile(`^(LOCK|XCHG|MFENCE)`)
)

// releaseOrder says what is wrong with a listing of Unlock.
func releaseOrder(listing string) error {
	var code []string
	for line := range strings.Lines(listing) {
		// file:line, address, bytes, instruction
		if f := strings.Split(strings.TrimSpace(line), "\t"); len(f) >= 3 && strings.Contains(f[0], ".go:") {
			code = append(code, strings.TrimSpace(f[len(f)-1]))
		}
	}
	store := slices.IndexFunc(code, ownerStore.MatchString)
	if store < 0 {
		return errors.New("no plain store of 0")
	}
	if slices.ContainsFunc(code[store+1:], ownerStore.MatchString) {
		return errors.New("two plain stores of 0")
	}
	// On to the next jump, which may leave.
	next := store + 1
	for next < len(code) && !strings.HasPrefix(code[next], "J") && !strings.HasPrefix(code[next], "RET") {
		next++
	}
	switch before, after := code[:store], code[store:next]; {
	case !slices.ContainsFunc(before, wordLoad.MatchString):
		return errors.New("no load of the owner word before the store")
	case !slices.ContainsFunc(before, comparison.MatchString):
		return errors.New("no comparison of the owner word before the store")
	case !slices.ContainsFunc(after, wordLoad.MatchString):
		return errors.New("no load of the wake word right after the store")
	case slices.ContainsFunc(after, barrier.MatchString):
		return errors.New("a barrier between the store and the load")
	}
	return nil
}

// The checker of the above tells right from wrong.
func TestReleaseOrderChecker(t *testing.T) {
	listing := func(ins ...string) string {
		s := "TEXT x\n"
		for _, i := range ins {
			s += "  mutex.go:1\t0x1\t00\t" + i + "\t\n"
		}
		return s
	}
	require.NoError(t, releaseOrder(listing("MOVL 0(CX), DX", "CMPL DX, 0x14(AX)", "JNE 0x1", "MOVL $0x0, 0(CX)",
		"MOVQ 0x8(AX), CX", "MOVL 0(CX), CX", "BTL $0x0, CX", "JB 0x1", "RET")))
	for name, ins := range map[string][]string{
		"load first":  {"MOVL 0(CX), DX", "CMPL DX, 0x14(AX)", "JNE 0x1", "MOVL 0(BX), SI", "MOVL $0x0, 0(CX)", "BTL $0x0, SI", "JB 0x1", "RET"},
		"an exchange": {"MOVL 0(CX), DX", "CMPL DX, 0x14(AX)", "JNE 0x1", "XORL DI, DI", "XCHGL DI, 0(CX)", "MOVL 0(BX), SI", "BTL $0x0, SI", "RET"},
		"no look":     {"MOVL $0x0, 0(CX)", "MOVL 0(BX), SI", "RET"},
		"a barrier":   {"MOVL 0(CX), DX", "CMPL DX, 0x14(AX)", "JNE 0x1", "MOVL $0x0, 0(CX)", "MFENCE", "MOVL 0(BX), SI", "JB 0x1"},
	} {
		require.Error(t, releaseOrder(listing(ins...)), name)
	}
}

// Nothing is allocated: neither where nobody waits, nor, once the pools are
// warm, by a wait that cannot be cancelled.
func TestAllocations(t *testing.T) {
	if race.Enabled || crashpoint.Enabled {
		t.Skip("needs a build without the race detector and crash points: their hooks allocate")
	}
	a := newArena(t, nil)
	m := newMutex(t, a, nil)
	checked := newMutex(t, a, &prims.MutexOptions{Checked: true})
	f, err := prims.OpenFutex(a, "f", nil)
	require.NoError(t, err)
	f.Post() // for Wait, which may come first
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, fn := range map[string]func(){
		"Lock":        func() { m.Lock(); m.Unlock() },
		"Checked":     func() { checked.Lock(); checked.Unlock() },
		"LockContext": func() { m.LockContext(ctx); m.Unlock() },
		"TryLock":     func() { m.TryLock(); m.Unlock() },
		"TryLock no":  func() { m.Lock(); m.TryLock(); m.Unlock() },
		"Post":        func() { f.Post() },
		"Wait":        func() { f.Wait(1) },
		"Get":         func() { f.Get() },
	} {
		require.Zero(t, testing.AllocsPerRun(1000, fn), name)
	}
}

func TestAllocationsContended(t *testing.T) {
	if race.Enabled || crashpoint.Enabled {
		t.Skip("needs a build without the race detector and crash points: their hooks allocate")
	}
	a := newArena(t, nil)
	for _, poller := range []bool{false, true} {
		t.Run(fmt.Sprintf("behind the poller %v", poller), func(t *testing.T) {
			if poller {
				fillThreads(t, a)
			}
			m := newMutex(t, a, &prims.MutexOptions{Spin: -1})
			f, err := prims.OpenFutex(a, "", &prims.FutexOptions{Spin: -1})
			require.NoError(t, err)
			slept := 0
			hammer := func(turns int) {
				var wg sync.WaitGroup
				for range 6 {
					wg.Go(func() {
						for range turns {
							m.Lock()
							slept += min(m.Waiters(), 1)
							runtime.Gosched()
							m.Unlock()
						}
					})
					wg.Go(func() {
						for token := range uint64(turns) {
							f.Wait(token + 1)
						}
					})
				}
				wg.Go(func() {
					for f.Get() < uint64(turns) {
						f.Post()
						runtime.Gosched()
					}
				})
				wg.Wait()
			}
			hammer(200) // fills the pools
			const turns = 3000
			var before, after runtime.MemStats
			slept = 0
			runtime.ReadMemStats(&before)
			hammer(turns)
			runtime.ReadMemStats(&after)
			perTurn := float64(after.Mallocs-before.Mallocs) / (6 * turns)
			t.Logf("%d of %d turns had a waiter, %.4f allocations a turn", slept, 6*turns, perTurn)
			require.Greater(t, slept, turns)
			// The goroutines themselves, and what the collector does to pools.
			require.Less(t, perTurn, 0.01)
		})
	}
}

// fillThreads makes as many goroutines wait as have threads of their own, so that the next
// waiter parks behind the poller.
func fillThreads(t *testing.T, a *arena.Arena) {
	t.Helper()
	// One lock of each, since no more goroutines sleep in the kernel for one object than
	// can run at a time.
	var wg sync.WaitGroup
	var locks []*prims.FairMutex
	// A goroutine that waits for a queue lock takes a thread for a moment, and one that comes
	// just then parks. So there are as many as it takes.
	for asleep := 0; asleep < park.DirectMax; {
		require.Less(t, len(locks), 10*park.DirectMax, "they park, though threads are free")
		f, err := prims.OpenFairMutex(a, "", &prims.FairMutexOptions{Spin: -1})
		require.NoError(t, err)
		f.Lock()
		locks = append(locks, f)
		wg.Go(func() {
			f.Lock()
			f.Unlock()
		})
		eventually(t, "a thread is taken", f.String, func() bool { return f.Asleep() == 1 })
		asleep += 1 - prims.ParkedNodes(a, f.Offset())
	}
	t.Cleanup(func() {
		for _, f := range locks {
			f.Unlock()
		}
		wg.Wait()
	})
}
