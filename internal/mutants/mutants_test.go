package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMutantsApply checks that the edit of each mutant applies to the tree, and that docs/testing/mutants.md lists
// the mutant.
func TestMutantsApply(t *testing.T) {
	root := filepath.Join("..", "..")
	doc, err := os.ReadFile(filepath.Join(root, "docs", "testing", "mutants.md"))
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(doc), "| mutant | in | found by |\n|---|---|---|\n")
	require.True(t, ok, "docs/testing/mutants.md has no table of mutants")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := ""
	names := map[string]bool{}
	for _, m := range mutants {
		require.False(t, names[m.name], "two mutants are called %q", m.name)
		names[m.name] = true
		source, err := os.ReadFile(filepath.Join(root, m.file))
		require.NoError(t, err)
		_, err = m.apply(string(source))
		assert.NoError(t, err, m.name)
		rows += m.row() + "\n"
	}
	require.Equal(t, rows, table+"\n", "docs/testing/mutants.md; go run ./internal/mutants -list prints the rows")
}

// TestMutantsNameTests checks that the test of each mutant exists, because go test -run passes if its pattern matches
// no test.
func TestMutantsNameTests(t *testing.T) {
	for _, m := range mutants {
		var source strings.Builder
		files, err := filepath.Glob(filepath.Join("..", "..", m.pkg, "*_test.go"))
		require.NoError(t, err)
		for _, f := range files {
			text, err := os.ReadFile(f)
			require.NoError(t, err)
			source.Write(text)
		}
		for part := range strings.SplitSeq(m.run, "|") {
			name, _, _ := strings.Cut(part, "/")
			is, err := regexp.Compile(`(?m)^func ` + strings.TrimPrefix(strings.TrimSuffix(name, "$"), "^"))
			require.NoError(t, err)
			assert.True(t, is.MatchString(source.String()), "%s: no test %s in %s", m.name, name, m.pkg)
		}
	}
}

func TestApply(t *testing.T) {
	m := mutant{old: "a", new: "b"}
	s, err := m.apply("xay")
	require.NoError(t, err)
	require.Equal(t, "xby", s)
	_, err = m.apply("aa")
	require.ErrorContains(t, err, "2 times")
	_, err = m.apply("x")
	require.ErrorContains(t, err, "0 times")
	m.new = "a"
	_, err = m.apply("a")
	require.Error(t, err)
}
