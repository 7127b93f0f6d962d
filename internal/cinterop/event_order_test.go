//go:build linux

package cinterop

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

	"github.com/shmsync/shmsync/internal/proctest"
)

// In the machine code for arm64, a change of an Event comes before later loads of the caller. The test compiles for
// processors without LSE instructions, because a compare-and-swap by LSE instructions is already a fence.
func TestEventOrdersLoads(t *testing.T) {
	t.Parallel()
	const mend = "shmi_order_loads();"
	dir, without := t.TempDir(), t.TempDir()
	atomics := append(cut(t, "22-sys.h", "SHMI_FN uint32_t shmi_ld32", "/* Stores to a word that only"),
		cut(t, "22-sys.h", "SHMI_FN void shmi_full_fence", "SHMI_FN void shmi_load_fence")...)
	order := string(append(append(cut(t, "71-event.h", "SHMI_FN int shmi_event_claim", "\n}\n"), "\n}\n"...),
		cut(t, "71-event.h", "SHMI_FN int shmi_event_turn", "SHMI_FN ")...))
	for dir, text := range map[string]string{dir: order, without: strings.ReplaceAll(order, mend, "")} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "atomics.h"), atomics, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "order.h"), []byte(text), 0o600))
	}
	for name, command := range map[string]string{
		"gcc":   "aarch64-linux-gnu-gcc -mno-outline-atomics",
		"clang": "clang --target=aarch64-none-elf -mno-outline-atomics",
	} {
		t.Run(name, func(t *testing.T) {
			words := strings.Fields(command + " -march=armv8-a -std=c11 -ffreestanding")
			proctest.Program(t, words[0])
			for _, level := range []string{"-O0", "-O1", "-O2", "-O3"} {
				for dir, right := range map[string]bool{dir: true, without: false} {
					args := append(words[1:], level, "-I"+dir, "-S", "-o", "-", filepath.Join("testdata", "event_order.c"))
					out, err := exec.Command(words[0], args...).CombinedOutput()
					require.NoError(t, err, "%s", out)
					for _, function := range []string{"claim", "turn"} {
						err := loadsAfterCAS(armFunction(string(out), function))
						require.Equal(t, right, err == nil, "%s %s: %v\n%s", level, function, err, out)
					}
				}
			}
		})
	}
}

// armFunction returns the instructions and labels of a function in an assembly listing.
func armFunction(listing, name string) (code []string) {
	_, rest, _ := strings.Cut(listing, "\n"+name+":")
	body, _, _ := strings.Cut(rest, "\t.size\t"+name)
	for line := range strings.Lines(body) {
		line = strings.Join(strings.Fields(line), " ")
		if label := regexp.MustCompile(`^\.L\w+:`).FindString(line); label != "" {
			code = append(code, label)
		} else if line != "" && !strings.ContainsAny(line[:1], ".#/") {
			code = append(code, line)
		}
	}
	return code
}

var (
	armBranch = regexp.MustCompile(`^(b|b\.?(?:eq|ne|lo|hi|hs|ls|cc|cs|mi|pl|ge|gt|le|lt|vs|vc)|cbn?z|tbn?z) (?:.*, ?)?(\.L\w+)`)
	armOrders = regexp.MustCompile(`^(ldar|ldaxr|dmb) `)
)

// loadsAfterCAS returns an error if a path leads from a store-exclusive instruction to the end of the function without
// an acquire load or a fence. On such a path the CPU may execute loads of the caller before the store.
func loadsAfterCAS(code []string) error {
	labels := map[string]int{}
	for i, line := range code {
		if label, ok := strings.CutSuffix(line, ":"); ok {
			labels[label] = i
		}
	}
	found := false
	for i, line := range code {
		if !strings.HasPrefix(line, "stlxr ") {
			continue
		}
		found = true
		seen := make([]bool, len(code)+1)
		for todo := []int{i + 1}; len(todo) != 0; {
			at := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if at == len(code) || code[at] == "ret" {
				return fmt.Errorf("nothing orders the loads after instruction %d, %s", i, line)
			}
			if seen[at] || armOrders.MatchString(code[at]) {
				continue
			}
			seen[at] = true
			m := armBranch.FindStringSubmatch(code[at])
			if m != nil {
				to, ok := labels[m[2]]
				if !ok {
					return fmt.Errorf("a branch to %s", m[2])
				}
				todo = append(todo, to)
			}
			if m == nil || m[1] != "b" {
				todo = append(todo, at+1)
			}
		}
	}
	if !found {
		return errors.New("there is no store-exclusive instruction")
	}
	return nil
}

// The checker above accepts right listings, and refuses wrong ones.
func TestLoadsAfterCAS(t *testing.T) {
	const ldaxr, stlxr, again = "ldaxr x3, [x0]", "stlxr w4, x2, [x0]", "cbnz w4, .L2"
	require.NoError(t, loadsAfterCAS([]string{".L2:", ldaxr, stlxr, again, "dmb ish", "ret"}))
	require.NoError(t, loadsAfterCAS([]string{".L2:", ldaxr, stlxr, again, "bne .L3", "ldar x1, [x0]", "ret", ".L3:", "b .L2"}))
	require.Error(t, loadsAfterCAS([]string{".L2:", ldaxr, stlxr, again, "ret"}))
	require.Error(t, loadsAfterCAS([]string{".L2:", ldaxr, stlxr, again, "b.ne .L3", "dmb ish", "ret", ".L3:", "ret"}))
	require.Error(t, loadsAfterCAS([]string{stlxr, "cbnz w4, .L9", "dmb ish", "ret"}))
	require.Error(t, loadsAfterCAS([]string{"dmb ish", "ret"}))
}
