package shm

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/proctest"
)

// nodeList reads one of the kernel's lists of nodes. The list may be empty.
func nodeList(t *testing.T, which string) []int {
	text, err := os.ReadFile(filepath.Join("/sys/devices/system/node", which))
	if err != nil {
		return nil
	}
	list := strings.TrimSpace(string(text))
	if list == "" {
		return nil
	}
	p, err := ParsePolicy("bind:" + list)
	require.NoError(t, err)
	return p.Nodes
}

// severalNodes returns the NUMA nodes with memory. It skips the test if there are fewer than two, or if the system
// does not let this process place memory on a node.
func severalNodes(t *testing.T, helpers ...string) []int {
	nodes := nodeList(t, "has_memory")
	if len(nodes) < 2 {
		proctest.Skip(t, "needs two NUMA nodes with memory", helpers...)
	}
	s, err := CreateMemfd("permitted", page, nil, &Options{NUMA: Policy{Mode: PolicyBind, Nodes: nodes[:1]}})
	require.NoError(t, err)
	closing(t, s)
	if d := s.Degraded(); len(d) > 0 && errors.Is(d[0], ErrNotSupported) {
		proctest.Skip(t, "needs a system that lets it place memory with mbind: "+d[0].Error(), helpers...)
	}
	return nodes
}

// nodesBetween returns on which NUMA nodes the pages of a range are. It first maps the pages into this
// process, because the kernel gives a process this information only about pages that it has mapped.
func nodesBetween(t *testing.T, s *Segment, off, n int64) map[int]int {
	require.NoError(t, s.populate(off, n))
	pl := Placement{Off: off, Len: n}
	s.verify(&pl)
	require.True(t, pl.Verified)
	return pl.Nodes
}

func TestPlaceOnEachNode(t *testing.T) {
	nodes := severalNodes(t)
	for _, mode := range []PolicyMode{PolicyBind, PolicyPreferred, PolicyPreferredMany} {
		for _, node := range nodes {
			want := Policy{Mode: mode, Nodes: []int{node}}
			s, err := CreateMemfd("each", 4*page, nil, &Options{NUMA: want, Populate: true})
			require.NoError(t, err)
			closing(t, s)
			pages := int(s.Size() / s.pageSize)
			require.Empty(t, s.Degraded(), "%v", want)
			require.Equal(t, map[int]int{node: pages}, nodesBetween(t, s, 0, s.Size()), "%v", want)

			// Pages that already exist move to the new node.
			for _, other := range nodes {
				pl := s.Place(0, s.Size(), Policy{Mode: mode, Nodes: []int{other}})
				require.NoError(t, pl.Err)
				require.True(t, pl.Verified)
				require.Equal(t, map[int]int{other: pages}, pl.Nodes)
			}
		}
	}
}

// TestPlaceMovesWhatIsReserved: Place also moves pages that exist and that this mapping has not
// touched.
func TestPlaceMovesWhatIsReserved(t *testing.T) {
	for _, node := range severalNodes(t) {
		for _, mode := range []PolicyMode{PolicyBind, PolicyPreferred} {
			s, err := CreateMemfd("reserved", 4*page, nil, nil)
			require.NoError(t, err)
			closing(t, s)
			require.NoError(t, s.Reserve(0, s.Size()))
			pl := s.Place(0, s.Size(), Policy{Mode: mode, Nodes: []int{node}})
			require.NoError(t, pl.Err)
			require.Equal(t, map[int]int{node: int(s.Size() / s.pageSize)}, pl.Nodes)
		}
	}
}

func TestPlaceInTurn(t *testing.T) {
	nodes := severalNodes(t)
	s, err := CreateMemfd("turn", int64(len(nodes))*page, nil, &Options{
		NUMA: Policy{Mode: PolicyInterleave, Nodes: nodes}, Populate: true,
	})
	require.NoError(t, err)
	closing(t, s)
	require.Empty(t, s.Degraded())
	got := nodesBetween(t, s, 0, s.Size())
	share := int(s.Size()/s.pageSize) / len(nodes)
	require.Len(t, got, len(nodes))
	for node, n := range got {
		require.InDelta(t, share, n, 1, "node %d of %v", node, got)
	}

	// If all pages are on one node, Place with PolicyInterleave spreads them.
	require.NoError(t, s.Place(0, s.Size(), Policy{Mode: PolicyBind, Nodes: nodes[:1]}).Err)
	pl := s.Place(0, s.Size(), Policy{Mode: PolicyInterleave, Nodes: nodes})
	require.NoError(t, pl.Err)
	require.Len(t, pl.Nodes, len(nodes))
	for node, n := range pl.Nodes {
		require.Equal(t, share, n, "node %d of %v", node, pl.Nodes)
	}

	// Linux 6.9 and later have weights. On earlier kernels Place returns an error that says so, and
	// changes nothing.
	pl = s.Place(0, s.Size(), Policy{Mode: PolicyWeightedInterleave, Nodes: nodes})
	require.True(t, pl.Verified)
	require.Len(t, pl.Nodes, len(nodes))
	if pl.Err != nil {
		require.ErrorIs(t, pl.Err, unix.EINVAL)
		require.NoError(t, s.Place(0, s.Size(), Policy{Mode: PolicyInterleave, Nodes: nodes}).Err)
	}
}

// TestPlaceParts: each part of a segment can be on a different node.
func TestPlaceParts(t *testing.T) {
	nodes := severalNodes(t)
	s, err := CreateMemfd("parts", int64(len(nodes))*page, nil, nil)
	require.NoError(t, err)
	closing(t, s)
	for i, node := range nodes {
		require.NoError(t, s.Place(int64(i)*page, page, Policy{Mode: PolicyBind, Nodes: []int{node}}).Err)
	}
	for i, node := range nodes {
		require.Equal(t, map[int]int{node: int(page / s.pageSize)}, nodesBetween(t, s, int64(i)*page, page))
	}
}

// touching has the parameters of the helper "numa/touch".
type touching struct {
	Name string
	CPU  int
}

func init() {
	proctest.Register("numa/touch", func(c *proctest.Child) {
		var p touching
		c.Params(&p)
		s, err := Open(p.Name, nil)
		if err != nil {
			c.Fatal(err)
		}
		runtime.LockOSThread()
		var set unix.CPUSet
		set.Set(p.CPU)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			c.Fatal(err)
		}
		for off := int64(0); off < s.Size(); off += s.pageSize {
			s.mem[off] = 1
		}
		pl := Placement{Len: s.Size()}
		s.verify(&pl)
		c.Say(pl.Nodes)
	})
}

// cpuOf returns a CPU of a node, or -1.
func cpuOf(t *testing.T, node int) int {
	text, err := os.ReadFile(filepath.Join("/sys/devices/system/node", "node"+strconv.Itoa(node), "cpulist"))
	require.NoError(t, err)
	first, _, _ := strings.Cut(strings.TrimSpace(string(text)), ",")
	first, _, _ = strings.Cut(first, "-")
	if first == "" {
		return -1
	}
	p, err := ParsePolicy("bind:" + first)
	require.NoError(t, err)
	return p.Nodes[0]
}

// TestPlaceTouchedElsewhere: a policy applies to pages that any process touches, on any node. Without a
// policy, a page is on the node of the CPU that touches it, or near that node.
func TestPlaceTouchedElsewhere(t *testing.T) {
	withMemory := severalNodes(t, "numa/touch")
	for _, node := range nodeList(t, "has_cpu") {
		touch := func(policy Policy) (got map[int]int) {
			name := uniqueName(t)
			s, err := Create(name, page, nil, &Options{NUMA: policy})
			require.NoError(t, err)
			closing(t, s)
			p := proctest.Start(t, "numa/touch", proctest.Params(touching{name, cpuOf(t, node)}))
			p.Recv(t, &got)
			p.WaitExit(t)
			require.Equal(t, got, nodesBetween(t, s, 0, s.Size()), "both see the same")
			return got
		}
		pages := page / os.Getpagesize()
		for _, bound := range withMemory {
			require.Equal(t, map[int]int{bound: pages}, touch(Policy{Mode: PolicyBind, Nodes: []int{bound}}))
		}
		got := touch(Policy{})
		if slices.Contains(withMemory, node) {
			require.Equal(t, map[int]int{node: pages}, got)
		} else {
			require.Len(t, got, 1, "all on the node that is nearest to %d", node)
		}
	}
}

// TestPlaceOnNodesWithoutMemory: a node without memory causes the same kind of error as a node that
// does not exist. If the policy also has other nodes, they are used, and the error says so.
func TestPlaceOnNodesWithoutMemory(t *testing.T) {
	withMemory := severalNodes(t)
	without := slices.DeleteFunc(nodeList(t, "online"), func(n int) bool { return slices.Contains(withMemory, n) })
	if len(without) == 0 {
		t.Skip("needs a NUMA node without memory")
	}
	s, err := CreateMemfd("without", 4*page, greet, nil)
	require.NoError(t, err)
	closing(t, s)
	for _, mode := range []PolicyMode{PolicyBind, PolicyPreferred, PolicyPreferredMany, PolicyInterleave} {
		pl := s.Place(0, s.Size(), Policy{Mode: mode, Nodes: without[:1]})
		require.ErrorIs(t, pl.Err, unix.EINVAL, "%v", pl)
		require.ErrorContains(t, pl.Err, "node "+strconv.Itoa(without[0])+" has no memory")
		require.True(t, pl.Verified)
	}
	both := []int{withMemory[0], without[0]}
	for _, mode := range []PolicyMode{PolicyBind, PolicyInterleave} {
		pl := s.Place(0, s.Size(), Policy{Mode: mode, Nodes: both})
		require.ErrorIs(t, pl.Err, errOthers)
		require.ErrorContains(t, pl.Err, "node "+strconv.Itoa(without[0])+" has no memory")
		require.Equal(t, map[int]int{withMemory[0]: int(s.Size() / s.pageSize)}, pl.Nodes)
	}
	require.True(t, greeted(s))
}
