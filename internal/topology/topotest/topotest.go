// Package topotest gives tests the recorded hosts of internal/topology.
package topotest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/shmsync/shmsync/internal/topology"
)

// File returns the path of a file in the test data of internal/topology. It searches for the root of the module in
// the directories above the directory of the calling test. It does not use the path of this source file, because a
// program that was built with -trimpath does not know that path.
func File(name string) string {
	data := filepath.Join("internal", "topology", "testdata", name)
	root := "."
	for range 8 {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		root = filepath.Join(root, "..")
	}
	return filepath.Join(root, data)
}

// Tree returns the files of a recorded host. Use it only for a recording whose paths contain no lists. Tree does not
// expand a list, and does not check for one: a path with {0-7} becomes the name of one file.
func Tree(t testing.TB, name string) fstest.MapFS {
	t.Helper()
	text, err := os.ReadFile(File(name + ".tree"))
	if err != nil {
		t.Fatal(err)
	}
	tree := fstest.MapFS{}
	for line := range strings.Lines(string(text)) {
		name, text, _ := strings.Cut(line, ":")
		if strings.HasPrefix(line, "#") {
			continue
		}
		if tree[name] == nil {
			tree[name] = &fstest.MapFile{Mode: 0o666}
		}
		tree[name].Data = append(tree[name].Data, strings.TrimPrefix(text, " ")...)
	}
	return tree
}

// Host reads a recorded host.
func Host(t testing.TB, name string) *topology.Topology {
	t.Helper()
	top, err := topology.Recorded(File(name + ".tree"))
	if err != nil {
		t.Fatal(err)
	}
	return top
}
