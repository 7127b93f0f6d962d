//go:build linux

package bench

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/shmsync/shmsync/shm"
)

// MemTouch is how many lines a mem cell writes under the lock.
const MemTouch = 8

// Placement is the requested placement of a cell's memory, and the actual one.
type Placement struct {
	Asked string         `json:"asked"`          // a policy of package shm, or first-touch
	Nodes []int          `json:"nodes"`          // nodes on which the pages should be
	Got   map[string]int `json:"got"`            // number of pages on each node
	Gone  int            `json:"gone,omitempty"` // pages that could not be found
	Huge  int64          `json:"huge"`           // bytes that were mapped by huge pages
	Note  string         `json:"note,omitempty"` // why the placement is not known
}

// Heeded returns which share of the memory is where it should be, in percent.
func (p *Placement) Heeded() float64 {
	on, all := 0, 0
	for node, pages := range p.Got {
		if n, err := strconv.Atoi(node); err == nil && slices.Contains(p.Nodes, n) {
			on += pages
		}
		all += pages
	}
	return 100 * float64(on) / float64(max(all, 1))
}

// memMiBTime is how long a worker takes to allocate and link one MiB.
const memMiBTime = 2 * time.Millisecond

// MemShape has the parameters that only mem cells have: the CPU of the only worker, and where its memory should be.
type MemShape struct {
	Policy shm.Policy
	Huge   shm.HugePages
	Node   int // NUMA node of the CPU
	CPU    int
}

// PolicyName returns the name that the policy has in parameters and flags.
func (m *MemShape) PolicyName() string {
	if m.Policy.Mode == shm.PolicyDefault {
		return FirstTouch
	}
	return m.Policy.String()
}

// Asked returns the nodes on which the pages should be.
func (m *MemShape) Asked() []int {
	if len(m.Policy.Nodes) == 0 {
		return []int{m.Node}
	}
	return m.Policy.Nodes
}

// FirstTouch is the policy of memory that nobody places: each page is on the node of the CPU that touches the page
// first.
const FirstTouch = "first-touch"

// MemNames maps names of policies in --mem to the names in package shm, where they differ.
var MemNames = map[string]string{
	FirstTouch: "default", "weighted": "weighted-interleave", "prefer": "preferred", "prefer-many": "preferred-many",
}

// HugeByName has the choices of --huge.
var HugeByName = map[string]shm.HugePages{"none": shm.HugeNone, "thp": shm.HugeTransparent, "2M": shm.Huge2M, "1G": shm.Huge1G}

// HugeName returns the name of a page size in --huge.
func HugeName(h shm.HugePages) string {
	for name, is := range HugeByName {
		if is == h {
			return name
		}
	}
	return h.String()
}

// memRefusals caches the results of the method refused. The key is the policy and the page size.
var memRefusals sync.Map

// MemBytes returns the size of an arena for that much memory. It is larger, because the arena has words for each
// block that it could have.
func MemBytes(mib int) int64 { return int64(mib)<<20 + int64(mib)<<17 + ArenaLeast }

// refused returns the reason why the system does not give memory with this placement, or an empty string. It tries a
// small amount. If the pages come from a pool, it tries the whole amount.
func (m *MemShape) refused(mib int) string {
	size := int64(1)
	if m.Huge == shm.Huge2M || m.Huge == shm.Huge1G {
		size = MemBytes(mib)
	}
	key := m.PolicyName() + " " + HugeName(m.Huge)
	if why, ok := memRefusals.Load(key); ok {
		return why.(string)
	}
	why := ""
	s, err := shm.CreateMemfd("shmbench-probe", size, nil, &shm.Options{NUMA: m.Policy, HugePages: m.Huge, Populate: true})
	switch {
	case err != nil:
		why = err.Error()
	default:
		if d := s.Degraded(); len(d) > 0 {
			why = d[0].Error()
		}
		s.Close()
	}
	memRefusals.Store(key, why)
	return why
}

// ShortName returns the policy in the form of --mem, for a table.
func (m *MemShape) ShortName() string {
	name := m.PolicyName()
	for short, long := range MemNames {
		if rest, ok := strings.CutPrefix(name, long+":"); ok {
			return short + ":" + rest
		}
	}
	return name
}

// ArenaLeast is the size of an arena for a few objects.
const ArenaLeast = 8 << 20
