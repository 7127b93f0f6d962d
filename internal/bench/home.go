//go:build linux

package bench

import (
	"os"
	"strconv"

	"github.com/shmsync/shmsync/shm"
)

// The homes say on which NUMA node a cell of two processes has its memory: on
// the node of the first CPU, on that of the second, or on the farthest node
// without a CPU of the cell.
const (
	HomeFirst  = "first"
	HomeSecond = "second"
	HomeThird  = "third"
)

// HomeNames are the choices of --home.
var HomeNames = []string{HomeFirst, HomeSecond, HomeThird}

// homePolicy binds to a node.
func homePolicy(node int) shm.Policy { return shm.Policy{Mode: shm.PolicyBind, Nodes: []int{node}} }

// homeBytes is how much of a segment has the home of the cell: the whole of an arena for a lock, and all that peers use.
const homeBytes = ArenaLeast

// SetHome puts the memory of a segment on the home of the cell. The policy belongs to the file, so that pages that a worker
// touches first go there, too.
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

// HomeOf looks where the memory of a cell with a home is, after its workers have ended. It returns nil for other cells.
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

// homeRefused says why the system does not put memory on the home of a cell.
func (c *Cell) homeRefused() string {
	if c.Home == "" {
		return ""
	}
	return (&MemShape{Policy: homePolicy(c.HomeNode)}).refused(0)
}
