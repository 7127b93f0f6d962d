package shm

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// nodesDir is the directory in which the kernel describes its NUMA nodes. statusFile says on which
// nodes this thread may have memory. Tests replace them.
var (
	nodesDir   = "/sys/devices/system/node"
	statusFile = "/proc/thread-self/status"
)

// nodesIn parses a list of nodes. It returns false if the text is not such a list.
func nodesIn(text string) ([]int, bool) {
	if text = strings.TrimSpace(text); text == "" {
		return nil, true // an empty list, for instance if no node has memory
	}
	nodes, err := parseNodes(text)
	return nodes, err == nil
}

// nodesOf returns the list of nodes of the given kind, such as "online", that the kernel reports.
func nodesOf(kind string) ([]int, bool) {
	b, err := os.ReadFile(nodesDir + "/" + kind)
	if err != nil {
		return nil, false
	}
	return nodesIn(string(b))
}

// memsAllowed returns the nodes on which the cpuset of this thread allows memory.
func memsAllowed() ([]int, bool) {
	b, err := os.ReadFile(statusFile)
	if err != nil {
		return nil, false
	}
	for line := range strings.Lines(string(b)) {
		if list, ok := strings.CutPrefix(line, "Mems_allowed_list:"); ok {
			return nodesIn(list)
		}
	}
	return nil, false
}

// unusable says which nodes of p cannot hold pages, and why, as far as the system reveals it. It
// returns "" if all nodes of p seem usable.
func (p Policy) unusable() string {
	var why []string
	online, known := nodesOf("online")
	memory, knownMemory := nodesOf("has_memory")
	allowed, knownAllowed := memsAllowed()
	for _, node := range p.nodeSet() {
		switch {
		case known && !slices.Contains(online, node):
			why = append(why, fmt.Sprintf("there is no node %d (nodes: %s)", node, formatNodes(online)))
		case knownMemory && !slices.Contains(memory, node):
			why = append(why, fmt.Sprintf("node %d has no memory (nodes with memory: %s)", node, formatNodes(memory)))
		case knownAllowed && !slices.Contains(allowed, node):
			why = append(why, fmt.Sprintf("the cpuset of this process has no memory of node %d (cpuset.mems: %s)", node, formatNodes(allowed)))
		}
	}
	return strings.Join(why, "; ")
}
