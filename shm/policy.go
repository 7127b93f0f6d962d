package shm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// PolicyMode says on which NUMA nodes the pages of a range are placed.
type PolicyMode int

const (
	// PolicyDefault puts each page on the node of the CPU that first touches it. A policy of the
	// process that touches the page (numactl), or of the mount of the filesystem, takes precedence.
	PolicyDefault PolicyMode = iota
	// PolicyBind puts pages on the given nodes and nowhere else.
	PolicyBind
	// PolicyPreferred puts pages on the given node as long as that node has room.
	PolicyPreferred
	// PolicyInterleave puts successive pages on the given nodes in turn.
	PolicyInterleave
	// PolicyPreferredMany puts pages on the given nodes as long as one of them has room. It needs Linux
	// 5.15.
	PolicyPreferredMany
	// PolicyWeightedInterleave is PolicyInterleave with weights: the system's weight of a node
	// determines its share of the pages. It needs Linux 6.9.
	PolicyWeightedInterleave
	// PolicyLocal puts each page on the node of the CPU that first touches it. It takes precedence over
	// a policy of the process that touches the page, and over a policy of the mount.
	PolicyLocal
)

var policyModeNames = [...]string{"default", "bind", "preferred", "interleave", "preferred-many", "weighted-interleave", "local"}

// nodeless reports whether a Policy of this mode has no nodes.
func (m PolicyMode) nodeless() bool { return m == PolicyDefault || m == PolicyLocal }

// String returns the name of the mode as ParsePolicy reads it.
func (m PolicyMode) String() string {
	if m < 0 || int(m) >= len(policyModeNames) {
		return fmt.Sprintf("PolicyMode(%d)", int(m))
	}
	return policyModeNames[m]
}

// Policy is a NUMA placement. The zero Policy places a page where it is first touched.
type Policy struct {
	Mode PolicyMode // how the nodes of pages are chosen
	// Nodes are node numbers, from 0 to 1023, in any order. PolicyDefault and PolicyLocal have no
	// nodes, PolicyPreferred has one, and the other modes have one or more.
	Nodes []int
}

// maxNode is the largest node number that a kernel can be built for.
const maxNode = 1023

// ParsePolicy parses the form that Policy.String returns: a mode and, unless the mode is "default" or
// "local", a colon and a list of nodes and ranges of nodes. Examples are "bind:1" and
// "interleave:0-3,6". The empty string is the default policy.
func ParsePolicy(s string) (Policy, error) {
	bad := func(why string) (Policy, error) {
		return Policy{}, fmt.Errorf("shm: policy %q: %s: %w", s, why, syscall.EINVAL)
	}
	if s == "" {
		return Policy{}, nil
	}
	name, list, hasNodes := strings.Cut(s, ":")
	mode := slices.Index(policyModeNames[:], name)
	if mode < 0 {
		return bad("the mode is none of " + strings.Join(policyModeNames[:], ", "))
	}
	p := Policy{Mode: PolicyMode(mode)}
	if hasNodes {
		nodes, err := parseNodes(list)
		if err != nil {
			return bad(err.Error())
		}
		p.Nodes = nodes
	}
	p.Nodes = p.nodeSet()
	if err := p.check(); err != nil {
		return bad(err.Error())
	}
	return p, nil
}

// parseNodes parses a list of nodes and ranges of nodes, such as "0-3,6".
func parseNodes(list string) (nodes []int, err error) {
	for item := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(item, "-")
		if !isRange {
			last = first
		}
		lo, err1 := strconv.ParseUint(first, 10, 16)
		hi, err2 := strconv.ParseUint(last, 10, 16)
		if err1 != nil || err2 != nil || lo > hi || hi > maxNode {
			return nil, fmt.Errorf("%q is not a node from 0 to %d, or a range of them", item, maxNode)
		}
		for n := lo; n <= hi; n++ {
			nodes = append(nodes, int(n))
		}
	}
	return nodes, nil
}

// formatNodes writes a list in the form that parseNodes parses. set is sorted.
func formatNodes(set []int) string {
	var s []string
	for i := 0; i < len(set); {
		j := i
		for j+1 < len(set) && set[j+1] == set[j]+1 {
			j++
		}
		item := strconv.Itoa(set[i])
		if j > i {
			item += "-" + strconv.Itoa(set[j])
		}
		s = append(s, item)
		i = j + 1
	}
	return strings.Join(s, ",")
}

// String returns the policy in the form that ParsePolicy reads.
func (p Policy) String() string {
	s := p.Mode.String()
	if len(p.Nodes) > 0 {
		s += ":" + formatNodes(p.nodeSet())
	}
	return s
}

// nodeSet returns the nodes sorted and without repetition.
func (p Policy) nodeSet() []int {
	return slices.Compact(slices.Sorted(slices.Values(p.Nodes)))
}

// check returns an error that matches EINVAL if p is not a valid policy.
func (p Policy) check() error {
	set := p.nodeSet()
	var why string
	switch {
	case p.Mode < 0 || int(p.Mode) >= len(policyModeNames):
		why = "unknown mode"
	case p.Mode.nodeless() && len(set) != 0:
		why = "takes no nodes"
	case !p.Mode.nodeless() && len(set) == 0:
		why = "needs a node"
	case p.Mode == PolicyPreferred && len(set) != 1:
		why = "takes one node"
	case len(set) > 0 && (set[0] < 0 || set[len(set)-1] > maxNode):
		why = fmt.Sprintf("has a node that is not from 0 to %d", maxNode)
	default:
		return nil
	}
	return fmt.Errorf("NUMA policy %v: %s: %w", p.Mode, why, syscall.EINVAL)
}

// mismatch says how many pages are not where p wants them. pages has the number of pages for each node.
// The result is "" if all pages are where p wants them.
func (p Policy) mismatch(pages map[int]int) string {
	if p.Mode.nodeless() {
		return ""
	}
	set := p.nodeSet()
	total, outside := 0, 0
	for node, n := range pages {
		total += n
		if _, ok := slices.BinarySearch(set, node); !ok {
			outside += n
		}
	}
	if outside > 0 {
		return fmt.Sprintf("%d of %d pages are on other nodes", outside, total)
	}
	if p.Mode == PolicyInterleave && total >= len(set) {
		for _, node := range set {
			if pages[node] == 0 {
				return fmt.Sprintf("node %d has none of %d pages", node, total)
			}
		}
	}
	return ""
}
