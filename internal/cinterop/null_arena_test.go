//go:build linux

package cinterop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var takesArena = regexp.MustCompile(`(?m)^function (.*?)(shmsync_\w+)\((?:const )?shmsync_arena \*a(?:, (.*))?\)$`)

// Every function of the C library that takes an arena refuses NULL: it returns EINVAL, or no value, and shmsync_error
// names the operation and the cause. After a call that should open an object, the handle is closed.
func TestNullArena(t *testing.T) {
	cc := compiler(t)
	lib := library(t, cc)
	recorded, err := os.ReadFile(filepath.Join("..", "..", "c", "abi.txt"))
	require.NoError(t, err)
	source := `#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "shmsync.h"
static union { uint64_t first; unsigned char bytes[4096]; } memory;
int main(void)
{
    int refused;
`
	functions := takesArena.FindAllStringSubmatch(string(recorded), -1)
	require.GreaterOrEqual(t, len(functions), 77)
	for _, f := range functions {
		result, name, params := strings.TrimSpace(f[1]), f[2], f[3]
		call := name + "(NULL"
		clears := regexp.MustCompile(`(\*out|\*recovered)$|\*out, `).MatchString(params) && name != "shmsync_arena_self"
		// A function of the program, as a parameter, has parameters of its own.
		params = regexp.MustCompile(`\w+ \(\*\w+\)\([^)]*\)`).ReplaceAllString(params, "f")
		for p := range strings.SplitSeq(params, ", ") {
			switch {
			case p == "":
			case p == "f" || strings.Contains(p, "_options *"):
				call += ", NULL"
			case strings.HasPrefix(p, "const char *"):
				call += `, "name"`
			case strings.Contains(p, "*"):
				call += ", (void *)memory.bytes"
			default:
				call += ", 8"
			}
		}
		refused := map[string]string{"int": call + ") == EINVAL", "uint64_t": call + ") == 0", "void *": call + ") == NULL"}[result]
		require.NotEmpty(t, refused, "%s returns %s", name, result)
		cleared := "1"
		if clears {
			cleared = "memory.first == 0"
		}
		source += fmt.Sprintf("    memset(&memory, 0xff, sizeof memory);\n    shmsync_arena_close(NULL); /* has another text */\n"+
			"    refused = %s;\n    printf(\"%s %%d %%d %%s\\n\", refused, %s, shmsync_error());\n    fflush(stdout);\n", refused, name, cleared)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "null.c")
	require.NoError(t, os.WriteFile(program, []byte(source+"    return 0;\n}\n"), 0o600))
	bin := filepath.Join(dir, "null")
	out, err := exec.Command(cc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-I"+lib, program, filepath.Join(lib, "libshmsync.a"), "-o", bin, "-pthread").CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(bin).CombinedOutput()
	require.NoError(t, err, "%s", out)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, lines, len(functions))
	for i, f := range functions {
		short := strings.TrimPrefix(f[2], "shmsync_")
		subject, verb, _ := strings.Cut(short, "_")
		op := map[string]string{"alloc": "arena.alloc", "free": "arena.free", "at": "arena.at", "delete": "arena.delete", "recover": "recover_all", "block": "arena.block", "value": "arena.value"}[subject]
		switch {
		case op != "":
		case subject == "arena":
			op = "arena." + verb
		default:
			op = subject + ".open"
		}
		require.Regexp(t, regexp.MustCompile("^"+f[2]+` 1 1 shmsync: `+regexp.QuoteMeta(op)+`( "name")?: .*: the arena is NULL$`), lines[i])
	}
}
