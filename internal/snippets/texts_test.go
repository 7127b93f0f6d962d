package snippets

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/mdtable"
)

// TestTroubleshooting requires that the error texts that the document quotes are in the code. So a programmer who
// changes such a text has to change the document, too.
func TestTroubleshooting(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "troubleshooting.md"))
	require.NoError(t, err)
	tables, err := mdtable.Parse(string(text))
	require.NoError(t, err)
	literals := stringLiterals(t, root, ".", "internal/arenakernel", "internal/typetext", "prims", "shm")
	looked := 0
	for _, table := range mdtable.With(tables, "text") {
		for _, row := range table.Rows {
			for _, text := range mdtable.Code(row.Cells[0]) {
				for _, part := range strings.Split(text, "...") {
					part = strings.Trim(part, " ,:;()[]`")
					if looked++; !strings.Contains(literals, part) {
						t.Errorf("docs/troubleshooting.md:%d: no error says %q", row.Line, part)
					}
				}
			}
		}
	}
	require.NotZero(t, looked)
}

// stringLiterals returns the string literals of the packages in some directories, one per line, without those of
// tests.
func stringLiterals(t *testing.T, root string, dirs ...string) string {
	var b strings.Builder
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		require.NoError(t, err)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ast.Inspect(f, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					s, err := strconv.Unquote(lit.Value)
					require.NoError(t, err)
					b.WriteString(s + "\n")
				}
				return true
			})
		}
	}
	return b.String()
}
