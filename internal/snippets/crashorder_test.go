package snippets

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCrashOrderOfTheRecipe checks the machine code of a recipe in the documents for a change that a kill may
// interrupt. The compiler must keep the stores of the recipe in their order: set the flag, write the data, clear the
// flag.
func TestCrashOrderOfTheRecipe(t *testing.T) {
	stores := map[string]struct{ flag, data string }{
		"amd64": {`XCHGL .*, 0\(`, `MOVQ .*, 0x(8|10)\(`},
		"arm64": {`STLRW `, `(MOVD|STP) .*, (8|16)\(`},
	}
	pattern, ok := stores[runtime.GOARCH]
	if !ok {
		t.Skipf("needs amd64 or arm64: the test does not know the store instructions of %s", runtime.GOARCH)
	}
	doc, err := os.ReadFile("../../docs/memory-model.md")
	require.NoError(t, err)
	source, err := os.ReadFile("testdata/crashorder/main.go")
	require.NoError(t, err)
	body := regexp.MustCompile(`(?s)func change.*?\n}\n`).FindString(string(source))
	require.Contains(t, string(doc), body, "the document has another recipe")

	bin := filepath.Join(t.TempDir(), "crashorder")
	out, err := exec.Command("go", "build", "-o", bin, "./testdata/crashorder").CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = exec.Command("go", "tool", "objdump", "-s", `main\.change`, bin).CombinedOutput()
	require.NoError(t, err, string(out))
	var order strings.Builder
	for line := range strings.Lines(string(out)) {
		switch {
		case regexp.MustCompile(pattern.flag).MatchString(line):
			order.WriteString("flag ")
		case regexp.MustCompile(pattern.data).MatchString(line):
			order.WriteString("data ")
		}
	}
	require.Regexp(t, `^flag (data )+flag $`, order.String(), string(out))
}
