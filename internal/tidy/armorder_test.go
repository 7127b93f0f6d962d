//go:build linux

package tidy

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// usesArmOrder is a program that has the functions whose machine code TestArmOrder reads.
const usesArmOrder = `package main

import (
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

func main() {
	a, err := arena.Open("armorder", nil)
	if err != nil {
		panic(err)
	}
	e, err := prims.OpenEvent(a, "e", nil)
	if err != nil {
		panic(err)
	}
	e.Set()
	e.Reset()
	e.TryWait()
	q, err := prims.OpenQueue[uint64](a, "q", 8, nil)
	if err != nil {
		panic(err)
	}
	q.Put(1)
	q.TryGet()
}
`

// TestArmOrder checks the machine code for arm64. An Event orders the change of its word before the loads that follow,
// and each store of a Queue is a release. The programs in internal/litmus show what goes wrong without this order. The
// test compiles for processors without LSE. With LSE, a CAS is one instruction that is also a fence.
func TestArmOrder(t *testing.T) {
	dir := t.TempDir()
	source, built := filepath.Join(dir, "main.go"), filepath.Join(dir, "armorder")
	require.NoError(t, os.WriteFile(source, []byte(usesArmOrder), 0o600))
	cmd := exec.Command("go", "build", "-o", built, source)
	cmd.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0", "GOARM64=v8.0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, f := range []string{`\(\*autoEvent\)\.claim$`, `\(\*manualEvent\)\.turn$`} {
		code := instructions(goTool(t, "tool", "objdump", "-s", f, built))
		require.NoError(t, loadsAfterCAS(code), "%s\n%s", f, strings.Join(code, "\n"))
	}
	for f, releases := range map[string]int{`\(\*queueCore\)\.take$`: 1, `\(\*queueCore\)\.publish$`: 2, `\(\*queueCore\)\.claimSlot$`: 1} {
		code := instructions(goTool(t, "tool", "objdump", "-s", f, built))
		require.NoError(t, onlyReleases(code, releases), "%s\n%s", f, strings.Join(code, "\n"))
	}
}

var (
	armBranch  = regexp.MustCompile(`^(JMP|B..|CBN?ZW?|TBN?Z)\s(?:.*\s)?(-?\d+)\(PC\)$`)
	armAcquire = regexp.MustCompile(`^(LDARW?|LDAXRW?|DMB)\s`)
	armStore   = regexp.MustCompile(`^(MOV[DWHB]U?(\.[PW])? \w+|STP(\.[PW])? \(.*\)|FMOV\w \w+), [^ ]*\((R\d+)\)$`)
)

// loadsAfterCAS returns an error if a path leads from a store-exclusive instruction to the end of the function without
// an acquire load or a fence. On such a path the CPU may execute loads of the caller before the store.
func loadsAfterCAS(code []string) error {
	found := false
	for i, line := range code {
		if !strings.HasPrefix(line, "STLXR") {
			continue
		}
		found = true
		seen := make([]bool, len(code))
		for todo := []int{i + 1}; len(todo) != 0; {
			at := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if at < 0 || at >= len(code) {
				return fmt.Errorf("a branch to instruction %d of %d", at, len(code))
			}
			if seen[at] || armAcquire.MatchString(code[at]) {
				continue
			}
			seen[at] = true
			if code[at] == "RET" {
				return fmt.Errorf("nothing orders the loads after instruction %d, %s", i, line)
			}
			m := armBranch.FindStringSubmatch(code[at])
			if m != nil {
				by, err := strconv.Atoi(m[2])
				if err != nil {
					return err
				}
				todo = append(todo, at+by)
			}
			if m == nil || m[1] != "JMP" {
				todo = append(todo, at+1)
			}
		}
	}
	if !found {
		return errors.New("there is no store-exclusive instruction")
	}
	return nil
}

// onlyReleases returns an error if a function has fewer than n releases, or a store to memory other than its stack
// that is no release.
func onlyReleases(code []string, n int) error {
	for _, line := range code {
		if strings.HasPrefix(line, "STLR ") {
			n--
		}
		if armStore.MatchString(line) {
			return fmt.Errorf("%q is a plain store", line)
		}
	}
	if n > 0 {
		return fmt.Errorf("%d releases are missing", n)
	}
	return nil
}

// TestArmOrderCheckers checks that loadsAfterCAS and onlyReleases accept right listings, and refuse wrong ones.
func TestArmOrderCheckers(t *testing.T) {
	const ldaxr, stlxr, ldar = "LDAXR (R4), R27", "STLXR R2, (R4), R27", "LDAR (R4), R4"
	require.NoError(t, loadsAfterCAS([]string{ldaxr, stlxr, "CBNZ R27, -2(PC)", ldar, "RET"}))
	require.NoError(t, loadsAfterCAS([]string{stlxr, "TBZ $0, R3, 3(PC)", ldar, "RET", "JMP -2(PC)"}))
	require.NoError(t, loadsAfterCAS([]string{stlxr, "DMB $11", "RET"}))
	require.Error(t, loadsAfterCAS([]string{ldaxr, stlxr, "CBNZ R27, -2(PC)", "RET"}))
	require.Error(t, loadsAfterCAS([]string{stlxr, "TBZ $0, R3, 3(PC)", ldar, "RET", "RET"}))
	require.Error(t, loadsAfterCAS([]string{ldar, "RET"}))
	require.NoError(t, onlyReleases([]string{"MOVD R30, -8(RSP)", "STLR R6, (R4)", "MOVD 256(R4), R6"}, 1))
	require.Error(t, onlyReleases([]string{"MOVD R6, 256(R4)", "STLR R6, (R4)"}, 1))
	require.Error(t, onlyReleases([]string{"STP (R2, R3), (R0)", "STLR R6, (R4)"}, 1))
	require.Error(t, onlyReleases([]string{"MOVD R30, -8(RSP)"}, 1))
}
