package shm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeNodes makes this package see the given lists of nodes instead of those of the system.
func fakeNodes(t *testing.T, files map[string]string, allowed string) {
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600))
	}
	status := filepath.Join(dir, "status")
	require.NoError(t, os.WriteFile(status, []byte("Name:\tx\nMems_allowed:\t3\nMems_allowed_list:\t"+allowed+"\n"), 0o600))
	oldDir, oldStatus := nodesDir, statusFile
	nodesDir, statusFile = dir, status
	t.Cleanup(func() { nodesDir, statusFile = oldDir, oldStatus })
}

// TestWhyNoNode: an error says what is wrong with a node, and which nodes there are instead.
func TestWhyNoNode(t *testing.T) {
	// Node 1 has no memory, node 2 no CPU, node 3 is outside the cpuset.
	fakeNodes(t, map[string]string{"online": "0-3", "has_memory": "0,2-3", "has_cpu": "0-1,3"}, "0-2")
	for text, want := range map[string]string{
		"bind:0":           "",
		"bind:2":           "", // node 2 has memory, and needs no CPU
		"local":            "",
		"bind:1":           "node 1 has no memory (nodes with memory: 0,2-3)",
		"bind:3":           "the cpuset of this process has no memory of node 3 (cpuset.mems: 0-2)",
		"preferred:9":      "there is no node 9 (nodes: 0-3)",
		"interleave:0-2,9": "node 1 has no memory (nodes with memory: 0,2-3); there is no node 9 (nodes: 0-3)",
	} {
		p, err := ParsePolicy(text)
		require.NoError(t, err)
		require.Equal(t, want, p.unusable(), text)
	}
	p, _ := ParsePolicy("weighted-interleave:0")
	require.Contains(t, p.invalid(), "since Linux 6.9")
	p, _ = ParsePolicy("bind:0")
	require.Contains(t, p.invalid(), "a mode this kernel does not know, or")
}

// TestWhyNoNodeUnknown: if the system does not describe its nodes, the error does not guess.
func TestWhyNoNodeUnknown(t *testing.T) {
	fakeNodes(t, map[string]string{"online": "all of them"}, "?")
	require.Empty(t, Policy{Mode: PolicyBind, Nodes: []int{7}}.unusable())
}
