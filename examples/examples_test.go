//go:build linux

package examples

import (
	"bytes"
	"context"
	"fmt"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// outputs has the expected output of each example with two kills, as a regular expression.
var outputs = map[string]string{
	"cache": `(a writer was killed, step (put|grow|evict|any): the cache is whole
){2}each block of the arena is in the cache
`,
	"config": `version 1: used by 4 subscribers
(subscriber \d|publisher) killed, version 1 stays
version 2: used by 4 subscribers
(subscriber \d|publisher) killed, version 2 stays
version 3: used by 4 subscribers
3 versions, none torn
`,
	"custom": `(worker \d has \d+ MiB and is killed
){2}200 claims, 2 of them of processes that were killed; 1024 MiB are back
`,
	"death": `(teller  \(pid \d+\) is half way through a transfer of 30
auditor \(pid \d+\) reads \[60 40\], without waiting
auditor \(pid \d+\) wants to transfer 5, and waits for teller \(pid \d+, slot .*\)
\$ kill -9 \d+
auditor has done so after \d+\.\d\d ms
  accounts \[55 45\]: nothing of the transfer of 30 is left
){2}`,
	"leader": `(term \d: candidate \d leads, and wrote entry \d
candidate \d killed
(candidate \d: repaired: entry \d taken back
)?){2}\d terms, 2 entries, all whole
`,
	"locktable": `8 of 8 locks allocated
one more: all locks of the table are allocated: 8
(3 locks held, engine \d killed, and another has its lock
){2}free a lock that is held: lock is held: 0
0 locks held
unlock: ok
unlock again: lock is not held by this process: .*
free: ok
free again: lock is not allocated: 5
retrieve: lock is not allocated: 5
reopen with another size: table has another size: 8, asked for 16
reopen: ok
7 of 8 locks allocated
`,
	"pipeline": `(round \d: stage \d killed
){2}4 stages, 2000 phases, 3 rounds: the sum is 3457465856, as it should be
`,
	"prefork": `200 requests for 8 pages answered by 3 processes
[12] processes killed while they fetched, (9|1\d) fetches
`,
	"spin": `(a worker was killed while it held the lock
){2}2 workers (spin for 25µs at most|do not spin): all 2000 turns counted
\d+ workers do not spin: all \d+ turns counted
`,
	"workers": `worker \d killed when 166 jobs were done
worker \d killed when 333 jobs were done
500 jobs of 8 tenants: all done, none lost
\d+ workers died, \d+ jobs were begun again
`,
}

// TestExamples runs each example with two kills, and checks its output.
func TestExamples(t *testing.T) {
	require.ElementsMatch(t, slices.Collect(maps.Keys(outputs)), programs(t), "each example has its output here")
	bin := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin+string(filepath.Separator), "./...").CombinedOutput()
	require.NoError(t, err, "%s", out)
	seeds := 4
	if testing.Short() {
		seeds = 1
	}
	for name, want := range outputs {
		t.Run(name, func(t *testing.T) {
			for seed := 1; seed <= seeds; seed++ {
				run(t, filepath.Join(bin, name), seed, want)
			}
		})
	}
}

func run(t *testing.T, program string, seed int, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), proctest.Scale(3*proctest.DefaultTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-kills", "2", "-seed", fmt.Sprint(seed))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "seed %d hangs:\n%s\n%s", seed, &stdout, &stderr)
	require.NoError(t, err, "seed %d:\n%s\n%s", seed, &stdout, &stderr)
	require.Regexp(t, "^"+want+"$", stdout.String(), "seed %d", seed)
	left, err := filepath.Glob(fmt.Sprintf("/dev/shm/example-*-%d", cmd.Process.Pid))
	require.NoError(t, err)
	require.Empty(t, left, "seed %d", seed)
}

// programs returns the directories of the examples.
func programs(t *testing.T) (names []string) {
	mains, err := filepath.Glob("*/main.go")
	require.NoError(t, err)
	for _, name := range mains {
		dir := filepath.Dir(name)
		own, err := filepath.Glob(filepath.Join(dir, "main_test.go")) // examples with C, and modules, have own tests
		require.NoError(t, err)
		if len(own) == 0 {
			names = append(names, dir)
		}
	}
	return names
}

// Some examples consist of a file to copy and a program that uses it. parts names the file to copy.
var parts = map[string]string{"locktable": "table.go", "cache": "cache.go"}

// Each example is short, so that it shows only one thing.
func TestExamplesAreShort(t *testing.T) {
	const most = 150
	for _, dir := range programs(t) {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		total := 0
		for _, name := range files {
			if !strings.HasSuffix(name, "_test.go") {
				total += codeLines(t, name)
			}
		}
		if part, ok := parts[dir]; ok {
			lines := codeLines(t, filepath.Join(dir, part))
			require.LessOrEqual(t, lines, most, part)
			total -= lines
		}
		require.LessOrEqual(t, total, most, dir)
	}
}

// codeLines returns the number of lines that have more than a comment.
func codeLines(t *testing.T, name string) int {
	src, err := os.ReadFile(name)
	require.NoError(t, err)
	var s scanner.Scanner
	f := token.NewFileSet().AddFile(name, -1, len(src))
	s.Init(f, src, nil, 0)
	lines := make(map[int]bool)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok != token.SEMICOLON || lit != "\n" {
			lines[f.Line(pos)] = true
		}
	}
}
