//go:build linux

package tidy

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// usesSynchronized is a program that calls methods of a Synchronized. The compiler may inline these methods.
const usesSynchronized = `package main

import (
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

type pair struct{ A, B, C, D uint64 }

//go:noinline
func change(s *prims.Synchronized[pair]) error {
	return s.Update(func(v *pair) error {
		v.A = 4711
		v.C = 4712
		return nil
	})
}

//go:noinline
func store(s *prims.Synchronized[pair], v pair) { s.Store(v) }

func main() {
	a, err := arena.Open("commitorder", nil)
	if err != nil {
		panic(err)
	}
	s, err := prims.OpenSynchronized(a, "s", pair{}, nil)
	if err != nil {
		panic(err)
	}
	if err := change(s); err != nil {
		panic(err)
	}
	store(s, pair{1, 2, 3, 4})
}
`

// TestCommitOrder checks the machine code of a program that uses a Synchronized, on amd64 and arm64. The code writes
// the copy, or calls the function of the Update, before the commit. It writes nothing between the commit and the
// return.
//
// The commit is a single store in a function that is not inlined. Only the call of this function makes the compiler
// keep the commit after the plain stores before it.
func TestCommitOrder(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			dir := t.TempDir()
			source, built := filepath.Join(dir, "main.go"), filepath.Join(dir, "commitorder")
			require.NoError(t, os.WriteFile(source, []byte(usesSynchronized), 0o600))
			cmd := exec.Command("go", "build", "-o", built, source)
			cmd.Env = append(os.Environ(), "GOARCH="+arch, "CGO_ENABLED=0")
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			for f, want := range map[string]string{
				`\.commitStore$`:                              "commit",
				`\(\*synchronized\)\.commit$`:                 "call commitStore",
				`Synchronized\[go.shape.*\]\)\.StoreContext`:  "data+ call commit",
				`Synchronized\[go.shape.*\]\)\.UpdateContext`: "data+ call f, call commit",
			} {
				listing := goTool(t, "tool", "objdump", "-s", f, built)
				require.NoError(t, commitOrder(arch, listing, want), "%s\n%s", f, listing)
			}
		})
	}
}

var (
	// dataStores match a store to memory other than the stack. They do not match a store to the 32-bit flags of the
	// handle. The examined functions write no other words on the Go heap.
	dataStores   = map[string]*regexp.Regexp{"amd64": regexp.MustCompile(`^(MOVQ|MOVUPS) \w+, (0x[0-9a-f]+|0)\(\w+\)`), "arm64": regexp.MustCompile(`^(STP \(.*\)|MOVD R\d+), (\d+)?\(R\d+\)`)}
	commitStores = map[string]*regexp.Regexp{"amd64": regexp.MustCompile(`^MOVQ BX, 0\(AX\)`), "arm64": regexp.MustCompile(`^STLR R1, \(R0\)`)}
	objdumpLine  = regexp.MustCompile(`\.go:\d+\s+0x[0-9a-f]+\s+[0-9a-f]+\s+(.*?)\s*$`)
	calls        = regexp.MustCompile(`^CALL (\S+)`)
)

// commitOrder returns an error unless the listing of a function has the stores and calls in the parameter want. It
// reads the listing up to the call of commit.
func commitOrder(arch, listing, want string) error {
	var found []string
	add := func(s string) {
		if len(found) == 0 || found[len(found)-1] != s {
			found = append(found, s)
		}
	}
	for line := range strings.Lines(listing) {
		// file:line, address, bytes, instruction
		f := objdumpLine.FindStringSubmatch(line)
		if f == nil {
			continue
		}
		code := f[1]
		switch m := calls.FindStringSubmatch(code); {
		case want == "commit":
			if commitStores[arch].MatchString(code) {
				found = append(found, "commit")
			} else if dataStores[arch].MatchString(code) || m != nil {
				found = append(found, code)
			}
		case m != nil && strings.HasSuffix(m[1], ".commitStore(SB)"):
			add("call commitStore")
		case m != nil && strings.HasSuffix(m[1], "(*synchronized).commit(SB)"):
			add("call commit")
		case m != nil && !strings.Contains(m[1], "(SB)"):
			add("call f")
		case dataStores[arch].MatchString(code) && !strings.Contains(code, "(SP)") && !strings.Contains(code, "(RSP)"):
			add("data")
		}
	}
	text := strings.Join(found, " ")
	switch {
	case want == "commit" && text != "commit",
		want == "call commitStore" && !regexp.MustCompile(`^call commitStore`).MatchString(text),
		want == "data+ call commit" && !regexp.MustCompile(`^(call f )?data call commit( call f)?$`).MatchString(text),
		want == "data+ call f, call commit" && !regexp.MustCompile(`^data call f call commit( call f)?$`).MatchString(text):
		return fmt.Errorf("found %q", text)
	case text == "":
		return errors.New("found nothing")
	}
	return nil
}

// TestCommitOrderChecker checks that commitOrder accepts right listings, and refuses wrong ones.
func TestCommitOrderChecker(t *testing.T) {
	listing := func(ins ...string) string {
		s := "TEXT x\n"
		for _, i := range ins {
			s += "  synchronized.go:1\t0x1\t00\t" + i + "\t\n"
		}
		return s
	}
	const f, commit = "CALL CX", "CALL x.(*synchronized).commit(SB)"
	require.NoError(t, commitOrder("amd64", listing("MOVQ BX, 0(AX)"), "commit"))
	require.NoError(t, commitOrder("amd64", listing("MOVQ BX, 0(AX)", "MOVQ SI, 0x8(AX)", f, commit, f), "data+ call f, call commit"))
	require.NoError(t, commitOrder("arm64", listing("STP (R2, R3), (R0)", "CALL (R1)", commit), "data+ call f, call commit"))
	for name, bad := range map[string]error{
		"no commit":            commitOrder("amd64", listing("MOVQ BX, 0(AX)", f), "data+ call f, call commit"),
		"the copy comes later": commitOrder("amd64", listing(f, "MOVQ BX, 0(AX)", commit), "data+ call f, call commit"),
		"a store behind":       commitOrder("amd64", listing("MOVQ BX, 0(AX)", commit, "MOVQ BX, 0(AX)"), "data+ call commit"),
		"commit before f":      commitOrder("arm64", listing("STP (R2, R3), (R0)", commit, "CALL (R1)", commit), "data+ call f, call commit"),
		"two stores":           commitOrder("amd64", listing("MOVQ BX, 0(AX)", "MOVQ BX, 0x8(AX)"), "commit"),
		"a plain store":        commitOrder("arm64", listing("MOVD R1, (R0)"), "commit"),
		"nothing":              commitOrder("amd64", listing("RET"), "call commitStore"),
	} {
		require.Error(t, bad, name)
	}
}
