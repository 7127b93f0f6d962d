package mdtable

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const sample = "# One\n\n| a | b |\n|---|---|\n| 1 | `x \\| y` |\n| --- | 2 |\n\ntext\n\n## Two (2)\n" +
	"```\n| no | table |\n```\n| c |\n|:--|\n| |\n"

func TestParse(t *testing.T) {
	tables, err := Parse(sample)
	require.NoError(t, err)
	require.Equal(t, []Table{
		{Section: "One", Columns: []string{"a", "b"}, Rows: []Row{{5, []string{"1", "`x | y`"}}, {6, []string{"---", "2"}}}},
		{Section: "Two (2)", Columns: []string{"c"}, Rows: []Row{{16, []string{""}}}},
	}, tables)
	require.Equal(t, tables[1:], In(tables, "Two"))
	require.Equal(t, tables[:1], With(tables, "a"))
	require.Empty(t, With(tables, "b"))
	require.Equal(t, []string{"x | y", "z"}, Code("see `x | y` and `z`"))

	require.Equal(t, "\ntext\n", Text("# x\n\ntext\n## y\n", "x"))

	_, err = Parse("| a | b |\n|---|---|\n| 1 |\n")
	require.ErrorContains(t, err, "line 3")
	_, err = ReadFile("no such file")
	require.Error(t, err)
}
