//go:build linux

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestErrorsOfArgumentsSayWhereToLook checks that an error about an argument names the command that helps.
func TestErrorsOfArgumentsSayWhereToLook(t *testing.T) {
	name := testArena(t)
	for _, c := range []struct {
		want int
		args []string
		says string
	}{
		{exitError, nil, "(see shmctl --help)"},
		{exitError, []string{"delete", name}, `expected "<name>" (see shmctl delete --help)`},
		{exitError, []string{"locks", "--older=x", name}, "(see shmctl locks --help)"},
		{exitMissing, []string{"show", name, "nothing"}, `there is no object "nothing"; shmctl objects lists all`},
		{exitMissing, []string{"value", name, "nothing"}, `there is no object "nothing"; shmctl objects lists all`},
		{exitMissing, []string{"ps", name + "-not"}, "no such file or directory; shmctl ls lists the arenas of this host"},
	} {
		code, _, errs := shmctl(c.args...)
		require.Equal(t, c.want, code, c.args)
		require.Contains(t, errs, c.says, c.args)
	}
}

// Each command ends with the status that the manual names.
func TestExitStatuses(t *testing.T) {
	sound, stuck := testArena(t), testArena(t)
	alice := newAgent(t, sound, "alice")
	alice.does("lock mutex", "ledger")
	alice.does("lock multi", "rows", 1)
	alice.does("lock semaphore", "workers", 1)
	carol, bob := newAgent(t, stuck, "carol"), newAgent(t, stuck, "bob")
	bob.does("lock mutex", "other")
	carol.does("lock mutex", "ledger")
	bob.begins("lock mutex", "ledger")
	awaitWaits(t, stuck, 1)
	freeze(t, carol)
	dir := t.TempDir()
	dump, text := filepath.Join(dir, "dump"), filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte("no arena"), 0o600))
	soon(t, exitOK, "dump", stuck, "-o", dump)

	type call struct {
		want int
		args []string
	}
	var calls []call
	add := func(want int, args ...string) { calls = append(calls, call{want, args}) }
	for _, command := range []string{"ps", "objects", "locks", "waits", "graph"} {
		add(exitOK, command, sound)
		add(exitTrouble, command, stuck)
		add(exitTrouble, command, dump)
	}
	add(exitOK, "show", sound, "ledger")
	add(exitTrouble, "show", stuck, "ledger")
	add(exitOK, "show", stuck, "other")
	add(exitTrouble, "ls") // the arena stuck is in trouble
	for _, a := range []string{sound, stuck, dump} {
		add(exitOK, "check", a)
		add(exitOK, "du", a)
		add(exitOK, "top", "-n", "1", a)
		add(exitOK, "metrics", a)
		add(exitOK, "reap", "--dry-run", a) // nobody is dead
		add(exitOK, "diff", a, a)
	}
	add(exitOK, "waits", "--older", "1h", sound)
	add(exitOK, "locks", "--older", "1h", sound)
	add(exitTrouble, "waits", "--older", "1ns", stuck)
	add(exitTrouble, "locks", "--older", "1ns", stuck)

	// Run each command that takes an arena twice: with a name that no arena has, and with a file that is not an arena.
	for _, missing := range []string{sound + "x", text} {
		for _, command := range []string{"ps", "objects", "du", "locks", "waits", "graph", "check", "metrics", "dump", "reap"} {
			add(exitMissing, command, missing)
		}
		for _, command := range []string{"show", "value", "recover", "delete"} {
			add(exitMissing, command, missing, "ledger")
		}
		add(exitMissing, "top", "-n", "1", missing)
		add(exitMissing, "set", missing, "ledger", "spin=none")
		add(exitMissing, "diff", sound, missing)
		add(exitMissing, "recover", "--all", missing)
		add(exitMissing, "load", missing, filepath.Join(dir, "new"))
	}
	for _, command := range []string{"show", "value", "recover", "delete"} {
		add(exitMissing, command, sound, "nothing")
	}
	add(exitMissing, "set", sound, "nothing", "spin=none")
	add(exitMissing, "rm", sound+"x")

	for _, args := range [][]string{{"reap", dump}, {"recover", dump, "ledger"}, {"recover", "--all", dump}, {"set", dump, "ledger", "spin=none"}, {"delete", dump, "ledger"}, {"dump", dump, "-o", dump + "x"}} {
		add(exitRefused, args...)
	}
	add(exitRefused, "rm", sound)
	add(exitRefused, "create", sound)
	add(exitRefused, "delete", sound, "ledger")
	add(exitRefused, "recover", "--wait=1ms", sound, "ledger")
	add(exitRefused, "recover", sound, "rows")
	add(exitRefused, "recover", sound, "workers")

	for _, args := range [][]string{{}, {"ps"}, {"ps", "--nonsense", sound}, {"--json", "metrics"}, {"recover", sound}, {"recover", "--all", sound, "ledger"},
		{"set", sound, "ledger", "spin"}, {"create", "--size=x", sound + "y"}, {"load", dump, text}, {"dump", sound, "-o", text}} {
		add(exitError, args...)
	}
	for _, c := range calls {
		code, out, errs := shmctl(c.args...)
		require.Equal(t, c.want, code, "%v\n%s%s", c.args, out, errs)
		if c.want == exitError || c.want == exitMissing || c.want == exitRefused {
			require.True(t, strings.HasPrefix(errs, "shmctl: "), "%v\n%s", c.args, errs)
		}
	}
	alice.Kill(t)
	for _, c := range []call{{exitTrouble, []string{"reap", "--dry-run", sound}}, {exitOK, []string{"reap", sound}}, {exitOK, []string{"recover", "--all", sound}},
		{exitOK, []string{"recover", sound, "ledger"}}, {exitOK, []string{"delete", sound, "ledger"}}, {exitOK, []string{"rm", sound}}, {exitOK, []string{"create", "--size=1M", sound}}} {
		soon(t, c.want, c.args...)
	}
	corrupt := fileBytes(t, stuck)
	copy(corrupt[24:], "\xff\xff\xff\xff")
	bad := filepath.Join(dir, "bad")
	require.NoError(t, os.WriteFile(bad, corrupt, 0o600))
	for _, command := range []string{"ps", "objects", "locks", "waits", "graph", "check"} {
		code, out, errs := shmctl(command, bad)
		require.Equal(t, exitTrouble, code, "%s\n%s%s", command, out, errs)
	}
}

// TestManualsAgreeOnStatuses checks that the help, the manual page and docs/shmctl.md describe the exit statuses in the
// same way.
func TestManualsAgreeOnStatuses(t *testing.T) {
	manual, err := os.ReadFile("../../docs/shmctl.md")
	require.NoError(t, err)
	status := manual[strings.Index(string(manual), "## Exit status"):]
	_, man, _ := shmctl("man")
	_, help, _ := shmctl("--help")
	flat := func(s string) string {
		return regexp.MustCompile(`\s+`).ReplaceAllString(strings.ReplaceAll(s, `\-`, "-"), " ")
	}
	require.Contains(t, flat(help), flat(exitHelp))
	require.Contains(t, flat(man), flat(strings.TrimPrefix(exitHelp, "Exit status: ")))
	for _, command := range []string{"ls", "ps", "objects", "show", "locks", "waits", "graph", "check", "reap --dry-run", "waits --older", "locks --older"} {
		require.Contains(t, string(status), "`"+command+"`")
		require.Regexp(t, `\b`+command+`\b`, flat(exitHelp))
	}
}

// The manual's table of columns has each column of each command, with a description.
func TestManualListsColumns(t *testing.T) {
	manual, err := os.ReadFile("../../docs/shmctl.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(manual), "### Columns\n")
	table, _, _ = strings.Cut(table, "\n### ")
	listed := map[string]map[string]bool{} // the columns in the manual, by command
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, command := range regexp.MustCompile("`([a-z]+)").FindAllStringSubmatch(cells[2], -1) {
			if listed[command[1]] == nil {
				listed[command[1]] = map[string]bool{}
			}
			for _, column := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
				listed[command[1]][column[1]] = true
			}
		}
	}
	name := testArena(t)
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	alice.does("lock mutex", "ledger")
	dump := filepath.Join(t.TempDir(), "dump")
	soon(t, exitOK, "dump", name, "-o", dump)
	bob.begins("lock mutex", "ledger")
	awaitWaits(t, name, 1)
	counted := testArena(t) + "c"
	soon(t, exitOK, "create", "--counted", "--size=1M", counted)
	t.Cleanup(func() { shmctl("rm", "--force", counted) })
	for _, args := range [][]string{{"ls", "-o", "wide"}, {"ps", "-o", "wide", name}, {"objects", "-o", "wide", name}, {"show", "-o", "wide", name, "ledger"},
		{"locks", "-o", "wide", name}, {"waits", "-o", "wide", name}, {"top", "-n", "1", counted}, {"top", "-n", "1", name}, {"du", name}, {"diff", dump, name}} {
		_, out, errs := shmctl(args...)
		heads := 0
		for line := range strings.SplitSeq(out, "\n") {
			columns := regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(line), -1)
			if len(columns) < 3 || !regexp.MustCompile(`^[A-Z][A-Z/ ]*$`).MatchString(columns[0]) || strings.ToUpper(line) != line {
				continue
			}
			heads++
			for _, c := range columns {
				require.True(t, listed[args[0]][c], "%v: column %q is not in the manual: %v", args, c, listed[args[0]])
			}
		}
		want := 1
		if args[0] == "show" {
			want = 2
		}
		require.Equal(t, want, heads, "%v\n%s%s", args, out, errs)
	}
}

// docs/testing/machines.md says what each test that may be skipped needs.
func TestSkippedTestsAreListed(t *testing.T) {
	page, err := os.ReadFile("../../docs/testing/machines.md")
	require.NoError(t, err)
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	found := 0
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			d, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(d.Name.Name, "Test") {
				continue
			}
			ast.Inspect(d.Body, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && (s.Sel.Name == "Skip" || s.Sel.Name == "Skipf") {
					found++
					require.Contains(t, string(page), "`"+d.Name.Name+"`", file)
				}
				return true
			})
		}
	}
	require.NotZero(t, found)
}
