//go:build linux

package cinterop

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// txRegisters has, by architecture, the registers with the arguments of the function "change" in tx_order.c: the
// addresses of the state, the record and the data.
var txRegisters = map[string]map[string]string{
	"amd64": {"%rdi": "state", "%rsi": "record", "%rdx": "data"},
	"arm64": {"x0": "state", "x1": "record", "x2": "data"},
}

// txStore matches a store in assembly, by architecture. The submatch is the register with the address.
var txStore = map[string]*regexp.Regexp{
	"amd64": regexp.MustCompile(`^\s+mov\w*\s+\S+,\s*\((%\w+)\)`),
	"arm64": regexp.MustCompile(`^\s+st[rlpu]+\w*\s+\w+,\s*\[(\w+)\]`),
}

// The compiler stores the record, the state, the data, and the state again, in this order, and omits none of these
// stores. A rollback relies on this order after a death between two stores. Without the barriers the compiler omits
// stores.
func TestTxStateIsStoredInOrder(t *testing.T) {
	t.Parallel()
	found := 0
	for _, c := range []struct{ compiler, arch, flags string }{
		{"gcc", "amd64", ""},
		{"clang", "amd64", "--target=x86_64-none-elf"},
		{"aarch64-linux-gnu-gcc", "arm64", ""},
		{"clang", "arm64", "--target=aarch64-none-elf"},
	} {
		for _, level := range []string{"-O1", "-O2", "-O3"} {
			t.Run(c.compiler+"/"+c.arch+"/"+level, func(t *testing.T) {
				proctest.Program(t, c.compiler)
				if c.compiler == "gcc" {
					machine, err := exec.Command(c.compiler, "-dumpmachine").Output()
					require.NoError(t, err)
					if !strings.HasPrefix(string(machine), "x86_64") {
						t.Skipf("needs a gcc for amd64; it compiles for %s", machine)
					}
				}
				found++
				once := []string{"record", "state", "data", "state"}
				all := txStores(t, c.compiler, c.arch, strings.Fields(level+" "+c.flags)...)
				require.Equal(t, once, all["change"])
				require.Equal(t, once, all["change_restrict"])
				require.Equal(t, slices.Concat(once, once), all["change_twice"])
				if level != "-O1" {
					without := txStores(t, c.compiler, c.arch, strings.Fields(level+" -DWITHOUT_BARRIERS "+c.flags)...)
					require.NotEqual(t, slices.Concat(once, once), without["change_twice"], "the barriers change nothing, so this test shows nothing")
				}
			})
		}
	}
	if found == 0 {
		t.Skip("needs gcc, clang or aarch64-linux-gnu-gcc")
	}
}

// txStores returns the stores of each function of tx_order.c.
func txStores(t *testing.T, compiler, arch string, flags ...string) map[string][]string {
	t.Helper()
	dir := t.TempDir()
	store := cut(t, "49-log.h", "SHMI_FN void shmi_log_store", "SHMI_FN uint64_t shmi_make_log")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "order.h"), store, 0o600))
	args := append([]string{"-std=c11", "-ffreestanding", "-I" + dir, "-S", "-o", "-"}, flags...)
	out, err := exec.Command(compiler, append(args, filepath.Join("testdata", "tx_order.c"))...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	all := map[string][]string{}
	function := ""
	for line := range strings.Lines(string(out)) {
		if m := regexp.MustCompile(`^(change\w*):`).FindStringSubmatch(line); m != nil {
			function = m[1]
		}
		if m := txStore[arch].FindStringSubmatch(line); m != nil {
			require.Contains(t, txRegisters[arch], m[1], "%s", out)
			all[function] = append(all[function], txRegisters[arch][m[1]])
		}
	}
	return all
}
