package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each edit applies to the tree as it is, and is in the table of the documents.
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
		require.NoError(t, err, m.name)
		rows += m.row() + "\n"
	}
	require.Equal(t, rows, table+"\n", "docs/testing/mutants.md; go run ./internal/mutants -list prints the rows")
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
