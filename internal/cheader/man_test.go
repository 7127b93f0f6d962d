package cheader

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

var reference = regexp.MustCompile(`(?m)^\.(?:It )?Xr (shmsync\w*) (\d)`)

var anyFunction = regexp.MustCompile(`(?m)^(?:static inline )?(?:const )?[a-z][a-z_0-9]* \**(shmsync_\w+)\(`)

// The manual pages in the tree are those that ManPages makes of the header, the examples and the documents.
func TestHeaderManPages(t *testing.T) {
	want, err := ManPages(root)
	require.NoError(t, err)
	dir := filepath.Join(root, "c", "man")
	if *update {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.Mkdir(dir, 0o755))
		for name, text := range want {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var there []string
	for _, e := range entries {
		there = append(there, e.Name())
		got, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		if string(got) != want[e.Name()] {
			t.Errorf("c/man/%s is not what the header makes: go generate ./internal/cheader", e.Name())
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(want)), there)
}

// TestHeaderNamesTheCallsOfSignalHandlers checks which calls the documents allow in a signal handler. The first comment
// of the header, which is also the text of shmsync(7), must name the same calls as the table in docs/c-api.md. The
// other manual pages are made from this table.
func TestHeaderNamesTheCallsOfSignalHandlers(t *testing.T) {
	preamble, err := os.ReadFile(filepath.Join(root, "include", "parts", "00-preamble.h"))
	require.NoError(t, err)
	_, signals, found := strings.Cut(string(preamble), "SIGNALS. A handler may make these calls, and no others:")
	require.True(t, found)
	signals, _, _ = strings.Cut(signals, "They may change errno")
	api, err := os.ReadFile(filepath.Join(root, "docs", "c-api.md"))
	require.NoError(t, err)
	safe, err := handlerCalls(string(api))
	require.NoError(t, err)
	named := regexp.MustCompile(`shmsync_\w+`).FindAllString(signals, -1)
	slices.Sort(named)
	require.Equal(t, slices.Sorted(maps.Keys(safe)), named)
}

// TestEveryDeclarationOfTheHeaderHasAComment checks that each public declaration has a comment and a manual page.
func TestEveryDeclarationOfTheHeaderHasAComment(t *testing.T) {
	decls, err := Declarations(filepath.Join(root, "include", "parts"))
	require.NoError(t, err)
	require.Greater(t, len(decls), 400)
	without := 0
	for _, d := range decls {
		if d.Comment == "" || strings.HasPrefix(d.Comment, "----") {
			t.Errorf("%s: %s has no comment", d.File, d.Name)
			without++
		}
		if pageOf(&d) == nil {
			t.Errorf("%s: %s is on no manual page: see pages", d.File, d.Name)
		}
	}
	t.Logf("%d of %d without a comment", without, len(decls))

	// The function Declarations must miss no function of the public part of the header.
	public, implementation := halves(t)
	seen := make(map[string]bool)
	for _, d := range decls {
		seen[d.Name] = true
	}
	for _, m := range anyFunction.FindAllStringSubmatch(public, -1) {
		require.True(t, seen[m[1]], m[1])
	}
	// The implementation must define only functions that the public part declares.
	defined := anyFunction.FindAllStringSubmatch(implementation, -1)
	require.Greater(t, len(defined), 300)
	for _, m := range defined {
		assert.True(t, seen[m[1]], "%s is defined and not declared", m[1])
	}
}

// halves splits the header into the public part, which every file of a program includes, and the implementation.
func halves(t *testing.T) (public, implementation string) {
	src, err := os.ReadFile(filepath.Join(root, "include", "shmsync.h"))
	require.NoError(t, err)
	public, implementation, found := strings.Cut(string(src), "#ifdef SHMSYNC_IMPLEMENTATION\n\n")
	require.True(t, found)
	return public, implementation
}

func TestDeclarations(t *testing.T) {
	require.Equal(t, []Decl{
		{Name: "SHMSYNC_A", Kind: Macro, Text: "#define SHMSYNC_A 1 /* one */", Comment: "one", File: "x.h"},
		{Name: "shmsync_t", Kind: Type, Text: "typedef struct shmsync_t {\n    int x;\n} shmsync_t;", Comment: "A type\nof two lines.", File: "x.h"},
		{Name: "shmsync_f", Kind: Func, Text: "int shmsync_f(int (*f)(void *, int), void *arg)", File: "x.h"},
	}, declarations("x.h", "/* ---- Section ---- */\n\n#define SHMSYNC_A 1 /* one */\n/* A type\n * of two lines. */\n"+
		"typedef struct shmsync_t {\n    int x;\n} shmsync_t;\n\nint shmsync_f(int (*f)(void *, int), void *arg);\n"))
	d := Decl{Text: "int shmsync_f(int (*f)(void *, int), void *arg)"}
	result, params := d.Parameters()
	require.Equal(t, "int", result)
	require.Equal(t, []string{"int (*f)(void *, int)", "void *arg"}, params)
	require.Equal(t, "f", nameOf(params[0]))
	require.Equal(t, "arg", nameOf(params[1]))
}

// TestManPagesLint checks that mandoc has no complaint about the pages, and that each page to which a page refers
// exists.
func TestManPagesLint(t *testing.T) {
	want, err := ManPages(root)
	require.NoError(t, err)
	for name, text := range want {
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			require.Contains(t, want, m[1]+"."+m[2], name)
		}
	}
	if _, err := exec.LookPath("mandoc"); err != nil {
		require.Empty(t, os.Getenv("SHMSYNC_NEED_MANDOC"), err)
		t.Skip("needs mandoc, of the package mandoc")
	}
	args := []string{"-T", "lint"}
	for name := range want {
		if filepath.Ext(name) != "" {
			args = append(args, filepath.Join(root, "c", "man", name))
		}
	}
	out, _ := exec.Command("mandoc", args...).Output()
	for line := range strings.Lines(string(out)) {
		// Ignore complaints about missing pages: mandoc searches only the pages that are installed, not those in c/man.
		if !strings.Contains(line, "referenced manual not found") && !strings.Contains(line, "outdated mandoc.db") {
			t.Error(line)
		}
	}
}
