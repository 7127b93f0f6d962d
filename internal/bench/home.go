//go:build linux

package bench

import (
	"os"
	"strconv"

	"github.com/shmsync/shmsync/shm"
)

// The home of a measurement is the NUMA node on which the memory of its two processes lies. It is the node of the first
// CPU, the node of the second CPU, or the farthest node that has neither CPU.
const (
	HomeFirst  = "first"
	HomeSecond = "second"
	HomeThird  = "third"
)

// HomeNames are the values of the flag --home, which says on which NUMA node the memory of a lock lies.
var HomeNames = []string{HomeFirst, HomeSecond, HomeThird}

// homePolicy returns the policy that binds memory to a NUMA node.
func homePolicy(node int) shm.Policy { return shm.Policy{Mode: shm.PolicyBind, Nodes: []int{node}} }

// homeBytes is the number of bytes at the start of a segment that SetHome puts on the chosen NUMA node. These bytes
// hold the whole arena of a lock, and all memory that primitives of the host use.
const homeBytes = ArenaLeast

// SetHome puts the memory of a segment on the home of the cell, that is, on the NUMA node that the cell asks for. The
// policy belongs to the file, so it also applies to pages that a worker touches first.
func SetHome(c *Cell, segment *os.File) error {
	if c.Home == "" {
		return nil
	}
	s, err := shm.FromFile(segment, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Place(0, min(s.Size(), homeBytes), homePolicy(c.HomeNode)).Err
}

// HomeOf reports on which NUMA nodes the memory of c lies. If c does not ask for a node, HomeOf returns nil. Call
// HomeOf after the workers have ended.
func HomeOf(c *Cell, segment *os.File) *Placement {
	if c.Home == "" {
		return nil
	}
	p := &Placement{Asked: homePolicy(c.HomeNode).String(), Nodes: []int{c.HomeNode}, Got: map[string]int{}}
	s, err := shm.FromFile(segment, nil)
	if err != nil {
		p.Note = err.Error()
		return p
	}
	defer s.Close()
	parts, err := s.Where(0, min(s.Size(), homeBytes))
	if err != nil {
		p.Note = err.Error()
		return p
	}
	for _, part := range parts {
		p.Gone += part.Absent
		for node, pages := range part.Nodes {
			p.Got[strconv.Itoa(node)] += pages
		}
	}
	return p
}

// homeRefused returns the reason why the system does not put memory on the NUMA node that the cell asks for, or an
// empty string.
func (c *Cell) homeRefused() string {
	if c.Home == "" {
		return ""
	}
	return (&MemShape{Policy: homePolicy(c.HomeNode)}).refused(0)
}
