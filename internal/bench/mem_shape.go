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

// MemTouch is how many cache lines a mem measurement writes while it holds the lock.
const MemTouch = 8

// Placement says on which NUMA nodes the memory of a measurement should be, and where it was found.
type Placement struct {
	Asked string         `json:"asked"`          // a policy of package shm, or FirstTouch
	Nodes []int          `json:"nodes"`          // nodes on which the pages should be
	Got   map[string]int `json:"got"`            // number of pages on each node
	Gone  int            `json:"gone,omitempty"` // pages that could not be found
	Huge  int64          `json:"huge"`           // bytes that were mapped by huge pages
	Note  string         `json:"note,omitempty"` // why the placement is not known
}

// Heeded returns how much of the memory is on the nodes where it should be, in percent.
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

// memMiBTime is about how long a worker takes to allocate one MiB and to build the chain of links in it.
const memMiBTime = 2 * time.Millisecond

// MemShape has the parameters that only mem measurements have: the CPU of the only worker, and where its memory should
// be.
type MemShape struct {
	Policy shm.Policy
	Huge   shm.HugePages
	Node   int // NUMA node of the CPU
	CPU    int
}

// PolicyName returns the name of the NUMA policy in parameters and reports: FirstTouch, or the name that package
// shm uses.
func (m *MemShape) PolicyName() string {
	if m.Policy.Mode == shm.PolicyDefault {
		return FirstTouch
	}
	return m.Policy.String()
}

// Asked returns the NUMA nodes on which the pages should be.
func (m *MemShape) Asked() []int {
	if len(m.Policy.Nodes) == 0 {
		return []int{m.Node}
	}
	return m.Policy.Nodes
}

// FirstTouch is the name of the policy for memory that nobody places. Each page is then on the node of the CPU that
// touches the page first.
const FirstTouch = "first-touch"

// MemNames maps the names of policies in the flag --mem to the names in package shm. It has only names that differ.
var MemNames = map[string]string{
	FirstTouch: "default", "weighted": "weighted-interleave", "prefer": "preferred", "prefer-many": "preferred-many",
}

// HugeByName maps the values of the flag --huge to sizes of pages.
var HugeByName = map[string]shm.HugePages{"none": shm.HugeNone, "thp": shm.HugeTransparent, "2M": shm.Huge2M, "1G": shm.Huge1G}

// HugeName returns the value of the flag --huge that stands for a size of pages.
func HugeName(h shm.HugePages) string {
	for name, is := range HugeByName {
		if is == h {
			return name
		}
	}
	return h.String()
}

// memRefusals caches the results of the method refused, by the policy, the page size and the size of the attempt.
var memRefusals sync.Map

// MemBytes returns the size of an arena that has room for mib MiB of memory. The arena is larger than that, because it
// also has words for each block that it could have.
func MemBytes(mib int) int64 { return int64(mib)<<20 + int64(mib)<<17 + ArenaLeast }

// refused returns the reason why the system does not give memory with this policy and page size, or an empty string. It
// tries to get a small amount. If the pages come from a pool that the system reserves, it tries the whole amount.
func (m *MemShape) refused(mib int) string {
	size := int64(1)
	if m.Huge == shm.Huge2M || m.Huge == shm.Huge1G {
		size = MemBytes(mib)
	}
	key := m.PolicyName() + " " + HugeName(m.Huge) + " " + strconv.FormatInt(size, 10)
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

// ShortName returns the policy as the user writes it in the flag --mem. A table shows it in this form.
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
