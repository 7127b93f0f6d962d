//go:build linux

package main

import (
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
)

// The help and the manual page of each command have two examples, which the command accepts.
func TestExamples(t *testing.T) {
	var p program
	parser, err := kong.New(&p, kong.Name("shmctl"), kong.Writers(io.Discard, io.Discard))
	require.NoError(t, err)
	_, man, _ := shmctl("man")
	all := commands(parser.Model)
	require.Len(t, examples, len(all))
	for _, n := range all {
		code, help, _ := shmctl(n.Name, "--help")
		require.Equal(t, exitOK, code)
		require.NotEqual(t, examples[n.Name][0], examples[n.Name][1], n.Name)
		for _, e := range examples[n.Name] {
			require.Contains(t, help, "    "+e.line+"\n")
			require.Contains(t, help, e.does)
			require.Contains(t, strings.ReplaceAll(man, `\-`, "-"), ".B "+e.line+"\n"+e.does)
			words := strings.Fields(strings.FieldsFunc(e.line, func(r rune) bool { return r == '|' || r == '>' })[0])
			require.Equal(t, "shmctl", words[0])
			var p program
			parser, err := kong.New(&p, kong.Name("shmctl"), kong.Writers(io.Discard, io.Discard))
			require.NoError(t, err)
			k, err := parser.Parse(words[1:])
			require.NoError(t, err, e.line)
			require.Equal(t, n.Name, k.Selected().Name, e.line)
		}
	}
}

// A command whose output has no JSON form refuses --json. Every other command prints a document.
func TestJSONIsRefusedOrPrinted(t *testing.T) {
	for name := range withoutJSON {
		args := []string{"--json", name}
		if name == "completion" {
			args = append(args, "bash")
		}
		code, out, errs := shmctl(args...)
		require.Equal(t, exitError, code)
		require.Empty(t, out)
		require.Contains(t, errs, name+" has no JSON form")
	}
	name := testArena(t)
	newAgent(t, name, "alice").does("lock mutex", "x")
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	_, err = arena.Value[uint64](a, "number")
	require.NoError(t, err)
	require.NoError(t, a.Close())
	dir := t.TempDir()
	rest := maps.Clone(examples) // the examples of commands that the test has not run yet
	for name := range withoutJSON {
		delete(rest, name)
	}
	for _, args := range [][]string{
		{"ls"}, {"ps", name}, {"objects", name}, {"du", name}, {"show", name, "x"}, {"locks", name}, {"waits", name}, {"graph", name},
		{"top", "-n", "1", name}, {"check", name}, {"diff", name, name}, {"dump", "-o", dir + "/d", name}, {"load", dir + "/d", dir + "/f"}, {"reap", name},
		{"value", name, "number"}, {"delete", name, "number"},
		{"recover", "--all", name}, {"set", name, "x", "spin=none"}, {"create", name + "x"}, {"rm", name + "x"},
	} {
		_, out, errs := shmctl(append([]string{"--json"}, args...)...)
		require.True(t, strings.HasPrefix(out, "{"), "%v: %s%s", args, out, errs)
		require.Contains(t, out, `"schema": `, args)
		delete(rest, args[0])
	}
	require.Empty(t, rest, "commands that are neither refused nor run")
}
