package snippets

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "copy the tables of the words from the code into the document")

// wordBlock matches the table of a word in a document: a comment that names the file and the type, and a fenced
// block.
var wordBlock = regexp.MustCompile("(?s)<!-- word: (\\S+) (\\S+) -->\n```text\n(.*?)```\n")

// TestWords compares the tables of words in the document with the tables in the comments of their types.
func TestWords(t *testing.T) {
	root := filepath.Join("..", "..")
	name := filepath.Join(root, "docs", "futex-protocols.md")
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NotEmpty(t, wordBlock.FindAll(text, -1))
	updated := wordBlock.ReplaceAllStringFunc(string(text), func(block string) string {
		m := wordBlock.FindStringSubmatch(block)
		table, err := wordTable(filepath.Join(root, filepath.FromSlash(path.Clean(m[1]))), m[2])
		require.NoError(t, err)
		return fmt.Sprintf("<!-- word: %s %s -->\n```text\n%s```\n", m[1], m[2], table)
	})
	if *update && updated != string(text) {
		require.NoError(t, os.WriteFile(name, []byte(updated), 0o666))
		return
	}
	require.Equal(t, updated, string(text), "go test ./internal/snippets -run Words -update")
}

// wordTable returns the layout and the states of a word: the preformatted part of the comment of its type,
// without the tags.
func wordTable(file, name string) (string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	for _, decl := range f.Decls {
		d, ok := decl.(*ast.GenDecl)
		if !ok || d.Tok != token.TYPE {
			continue
		}
		for _, spec := range d.Specs {
			if s := spec.(*ast.TypeSpec); s.Name.Name == name && d.Doc != nil {
				return setApart(d.Doc), nil
			}
		}
	}
	return "", fmt.Errorf("%s has no type %s with a comment", file, name)
}

func setApart(doc *ast.CommentGroup) string {
	var b strings.Builder
	gap := false
	for _, c := range doc.List {
		line, ok := strings.CutPrefix(c.Text, "//\t")
		if strings.HasPrefix(line, "writers:") {
			break
		}
		if !ok {
			gap = b.Len() > 0
			continue
		}
		if gap {
			b.WriteString("\n")
		}
		gap = false
		b.WriteString(strings.ReplaceAll(line, "\t", "    ") + "\n")
	}
	return b.String()
}
