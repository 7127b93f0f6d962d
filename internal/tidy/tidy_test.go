package tidy

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rule is one rule of the repository.
type rule struct {
	name  string
	check func([]*file) []finding

	good map[string]string // a tree that obeys the rule
	bad  []sample
}

// sample is a tree that breaks the rule.
type sample struct {
	tree map[string]string
	want string // part of the finding
}

var rules = []rule{
	unsafeRule,
	importRule,
	testifyRule,
	mmapRule,
	syncPointRule,
	crashPointRule,
	sleepRule,
	markerRule,
	formatRule,
	lengthRule,
	machinePathRule,
	newlineRule,
	docRule,
	robustnessRule,
	rolesRule,
	memoryModelRule,
	linkRule,
	tunableRule,
	featuresRule,
	exampleRule,
	shownRule,
	oldWordRule,
	headlessWhoRule,
	columnsRule,
	contextRule,
	optionsRule,
	skipRule,
	maySkipRule,
}

// TestTree applies the rules to the repository.
func TestTree(t *testing.T) {
	files, err := readTree(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.True(t, contains(files, "go.mod"), "not the root of the repository")
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			found := r.check(files)
			slices.SortFunc(found, func(a, b finding) int { return cmp.Compare(a.String(), b.String()) })
			for _, f := range found {
				t.Error(f)
			}
		})
	}
}

// TestRules applies the rules to their samples.
func TestRules(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			require.NotEmpty(t, r.good)
			require.NotEmpty(t, r.bad)
			require.Empty(t, r.check(sampleTree(r.good)), "the good tree")
			for _, s := range r.bad {
				found := r.check(sampleTree(s.tree))
				require.NotEmpty(t, found, "want %q", s.want)
				var texts []string
				for _, f := range found {
					texts = append(texts, f.String())
				}
				require.Contains(t, strings.Join(texts, "\n"), s.want)
			}
		})
	}
}

// TestRootIsModule checks that the root of the module is two directories above this package. TestTree reads the tree
// from there, because a test runs in the directory of its package.
func TestRootIsModule(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	require.NoError(t, err)
	require.Contains(t, string(mod), "module "+module+"\n")
}

func sampleTree(tree map[string]string) (files []*file) {
	for name, src := range tree {
		files = append(files, newFile(name, []byte(src)))
	}
	return files
}

func contains(files []*file, name string) bool {
	for _, f := range files {
		if f.path == name {
			return true
		}
	}
	return false
}
