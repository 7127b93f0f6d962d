//go:build linux

package tidy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// txCaller is a program with a call of Save or Set before each store to its data.
const txCaller = `package txorder

import "github.com/shmsync/shmsync/prims"

func Change(tx *prims.Tx, p, q *int64) {
	prims.Save(tx, p)
	*p = 0x1357
	prims.Set(tx, q, 0x2468)
	prims.Save(tx, p)
	*p = 0x3579
}
`

// TestLogStateOrder checks the machine code of a caller that inlines Save and Set. Each store to the data comes after
// the call of save that records this data, and before the next call of save. This order matters if the thread is
// killed.
//
// The functions that store the state of the log are not inlined, because only calls make the compiler keep the order.
func TestLogStateOrder(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			if _, err := exec.LookPath("go"); err != nil {
				t.Skip("needs the go command")
			}
			root, err := filepath.Abs(filepath.Join("..", ".."))
			require.NoError(t, err)
			tmp := t.TempDir()
			source, overlay := filepath.Join(tmp, "change.go"), filepath.Join(tmp, "overlay.json")
			require.NoError(t, os.WriteFile(source, []byte(txCaller), 0o600))
			replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "txorder", "change.go"): source}})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(overlay, replace, 0o600))
			code := func(pkg, function string) []string {
				built := filepath.Join(tmp, filepath.Base(pkg)+".a")
				if _, err := os.Stat(built); err != nil {
					cmd := exec.Command("go", "build", "-overlay", overlay, "-o", built, pkg)
					cmd.Dir = root
					cmd.Env = append(os.Environ(), "GOARCH="+arch, "CGO_ENABLED=0")
					out, err := cmd.CombinedOutput()
					require.NoError(t, err, "%s", out)
				}
				return instructions(goTool(t, "tool", "objdump", "-s", function, built))
			}
			require.NoError(t, inOrder(code("./txorder", `txorder\.Change$`),
				callOf("save"), constant(0x1357), callOf("save"), constant(0x2468), callOf("save"), constant(0x3579), `^RET`))
			stores := code("./prims", `prims\.storeLogState$`)
			require.Regexp(t, map[string]string{"amd64": `^MOVQ BX, 0\(AX\)`, "arm64": `^MOVD R1, \(R0\)`}[arch], stores[0])
			require.Regexp(t, `^RET`, stores[1])
			// Other processes free memory once they see the end of a rollback, so the store of the end is a release.
			release := strings.Join(code("./prims", `prims\.releaseLogState$`), "\n")
			require.Regexp(t, map[string]string{"amd64": `^(NOP\w*\n)*MOVQ BX, 0\(AX\)\n`, "arm64": `^(NOOP\n)*STLR R1, \(R0\)\n`}[arch]+`RET`, release)
			ends := strings.Join(code("./prims", `prims\.\(\*undoLog\)\.(undo|end|lose)$`), "\n")
			require.Len(t, regexp.MustCompile("(?m)"+callOf("releaseLogState")).FindAllString(ends, -1), 4, "%s", ends)
			require.NotRegexp(t, "(?m)"+callOf("storeLogState"), ends)
			save := code("./prims", `prims\.\(\*Tx\)\.save$`)
			require.NoError(t, inOrder(save, callOf("memmove"), callOf("storeLogState")))
			require.Error(t, inOrder(save, callOf("storeLogState"), callOf("memmove")))
		})
	}
}

var listed = regexp.MustCompile(`^\s*\S+\.go:\d+\s+0x[0-9a-f]+\s+[0-9a-f]+\s+(.*)$`)

// instructions returns the instructions of an objdump listing, each with its relocation.
func instructions(listing string) (code []string) {
	for line := range strings.Lines(listing) {
		if m := listed.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			code = append(code, strings.TrimSpace(m[1]))
		}
	}
	return code
}

// callOf returns a pattern that matches a call of the function or method f.
func callOf(f string) string { return `^CALL\s.*[.]` + f + `(<1>)?\s*$` }

// constant returns a pattern that matches the instruction that moves n to memory, or to the register that is
// stored next.
func constant(n int) string { return fmt.Sprintf(`^MOV. \$(0x%x|%d), `, n, n) }

// inOrder returns an error unless the code has instructions that match the patterns in this order. Between them
// there may be other instructions, but no call, and no instruction that matches one of the patterns.
func inOrder(code []string, patterns ...string) error {
	next := 0
	for _, line := range code {
		for i, p := range patterns {
			if !regexp.MustCompile(p).MatchString(line) {
				continue
			}
			if next < len(patterns) && patterns[next] == p {
				next++
				break
			}
			if i >= next || next == len(patterns) {
				return fmt.Errorf("%q is not in its place", line)
			}
		}
	}
	if next != len(patterns) {
		return fmt.Errorf("nothing matches %s", patterns[next])
	}
	return nil
}

// TestLogStateOrderChecker checks that inOrder accepts right listings, and refuses wrong ones.
func TestLogStateOrderChecker(t *testing.T) {
	save, one, two := "CALL 0x1\t[1:5]R_CALL:x/prims.(*Tx).save", "MOVQ $0x1357, 0(DX)", "MOVD $9320, R3"
	order := []string{callOf("save"), constant(0x1357), callOf("save"), constant(0x2468)}
	require.NoError(t, inOrder([]string{"NOPL", save, one, "NOPL", save, two}, order...))
	require.Error(t, inOrder([]string{one, save, save, two}, order...))
	require.Error(t, inOrder([]string{save, save, one, two}, order...))
	require.Error(t, inOrder([]string{save, one, two, save}, order...))
	require.Error(t, inOrder([]string{save, one, save}, order...))
}
