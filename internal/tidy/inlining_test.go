//go:build linux

package tidy

import (
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// inlined has three lists of functions for each package:
//
//   - inlined: fast paths that the compiler can inline into their callers.
//   - outOfLine: functions that must not be inlined, because their callers would become too large to be inlined.
//   - inside: functions that the compiler inlines into a caller of the same package.
var inlined = map[string]struct{ inlined, outOfLine, inside []string }{
	"./prims": {
		inlined: []string{
			"(*Mutex).Lock", "(*Mutex).LockContext", "(*Mutex).TryLock", "releaseBiased",
			"(*CohortMutex).Lock", "(*CohortMutex).LockContext", "(*CohortMutex).TryLock", "(*CohortMutex).Unlock",
			"(*FairMutex).Lock", "(*FairMutex).LockContext", "(*FairMutex).TryLock", "(*FairMutex).Unlock",
			"(*SpinLock).Lock", "(*SpinLock).LockContext", "(*SpinLock).TryLock",
			"(*RWMutex).RLock", "(*RWMutex).RLockContext", "(*RWMutex).RUnlock",
			"(*RWMutex).Lock", "(*RWMutex).Unlock", "(*RWMutex).LockUpgradable",
			"(*Futex).Get", "(*Futex).Wait",
			"(*Once).Do", "(*Once).DoContext", "(*Once).Done",
			"(*Latch).TryWait", "(*Latch).Wait", "(*Latch).WaitContext",
			"(*WaitGroup).Wait", "(*WaitGroup).WaitContext",
			"(*SignalWaker).Gate", // so that the handle of a gate stays on the caller's stack
		},
		outOfLine: []string{
			"(*Mutex).lockSlow", "(*Mutex).unlockSlow", "(*Mutex).lockOrPanic",
			"storeLogState", "storeKind", // a call keeps the stores before and after it in order
			"(*RWMutex).rlockSlow", "(*RWMutex).rlockOrPanic", "(*RWMutex).runlockSlow", "(*RWMutex).lock",
		},
		inside: []string{"releaseBiased"},
	},
}

// TestInlining compiles each package once, and reads the inlining decisions of the compiler.
func TestInlining(t *testing.T) {
	for pkg, want := range inlined {
		out := goTool(t, "build", "-gcflags=-m=2", pkg)
		for _, f := range want.inlined {
			require.Regexp(t, `can inline `+regexp.QuoteMeta(f)+` with cost`, out)
		}
		for _, f := range want.outOfLine {
			require.Regexp(t, `cannot inline `+regexp.QuoteMeta(f)+`:`, out)
		}
		for _, f := range want.inside {
			require.Contains(t, out, "inlining call to "+f)
		}
	}
}

// goTool runs the go command in the root of the module.
func goTool(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command")
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "go %v: %s", args, out)
	return string(out)
}

// TestReleaseOrder checks the machine code of Unlock on amd64. A plain store writes 0 to the owner word. This store
// comes after the load that tells whether the caller has the hold, and before the load of the wake word. Go's memory
// model does not guarantee this order.
func TestReleaseOrder(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("needs amd64: Unlock has the plain store only there")
	}
	built := filepath.Join(t.TempDir(), "prims.a")
	goTool(t, "build", "-o", built, "./prims")
	out := goTool(t, "tool", "objdump", "-s", `prims\.\(\*Mutex\)\.Unlock$`, built)
	require.NoError(t, releaseOrder(out), "%s", out)
}

var (
	ownerStore = regexp.MustCompile(`^MOVL \$0x0, 0\(\w+\)$`)
	wordLoad   = regexp.MustCompile(`^(MOVL 0\(\w+\), \w+|(TESTB|TESTL|BTL) \$0x[01], 0\(\w+\))$`)
	comparison = regexp.MustCompile(`^CMPL `)
	barrier    = regexp.MustCompile(`^(LOCK|XCHG|MFENCE)`)
)

// releaseOrder returns an error that says what is wrong with a listing of Unlock, or nil.
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
	// Find the next jump after the store, because the function may end there.
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

// TestReleaseOrderChecker checks that releaseOrder accepts right listings, and refuses wrong ones.
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
