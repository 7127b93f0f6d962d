//go:build linux

package selftest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/shm"
)

// selftestPages is the number of pages that a proof of a placement uses.
const selftestPages = 64

func selftestBytes() int64 { return selftestPages * int64(os.Getpagesize()) }

// placeProofs returns the proofs about placement: whether memory is on the nodes that the policy names.
func (t *selftester) placeProofs() (list []proof) {
	add := func(name string, run func(*selftester) (string, error)) {
		list = append(list, proof{"place/" + name, run})
	}
	memory := t.withMemory()
	for _, n := range t.nodes {
		switch {
		case n.Memory:
			add("bind:"+strconv.Itoa(n.ID), func(*selftester) (string, error) {
				return provePolicy(shm.Policy{Mode: shm.PolicyBind, Nodes: []int{n.ID}})
			})
		default:
			add("no-memory:"+strconv.Itoa(n.ID), func(*selftester) (string, error) { return proveRefused(n.ID) })
		}
		if len(n.CPUs) > 0 {
			add("first-touch:"+strconv.Itoa(n.ID), func(t *selftester) (string, error) { return t.proveFirstTouch(n) })
		}
	}
	add("absent", func(t *selftester) (string, error) { return proveRefused(t.nodes[len(t.nodes)-1].ID + 1) })
	for _, mode := range []shm.PolicyMode{shm.PolicyInterleave, shm.PolicyPreferredMany, shm.PolicyWeightedInterleave} {
		add(mode.String(), func(*selftester) (string, error) { return provePolicy(shm.Policy{Mode: mode, Nodes: memory}) })
	}
	add("preferred", func(*selftester) (string, error) {
		return provePolicy(shm.Policy{Mode: shm.PolicyPreferred, Nodes: memory[len(memory)-1:]})
	})
	add("range", (*selftester).proveRanges)
	add("move", (*selftester).proveMove)
	add("other-process", (*selftester).proveOthersObey)
	add("switched-off", (*selftester).proveNoPolicy)
	add("arena", (*selftester).proveArenaPlaced)
	return list
}

// placed creates a memfd with a policy, and returns what the library reports about its placement.
func placed(p shm.Policy) (*shm.Segment, shm.Placement, error) {
	seg, err := shm.CreateMemfd("selftest-place", selftestBytes(), nil, &shm.Options{NUMA: p, Populate: true})
	if err != nil {
		return nil, shm.Placement{}, err
	}
	if told := seg.Placement(); len(told) == 1 {
		return seg, told[0], nil
	}
	seg.Close()
	return nil, shm.Placement{}, fmt.Errorf("%v: one placement was asked for, %d are told", p, len(seg.Placement()))
}

// heeded returns an error if the placement of a segment does not follow its policy. It checks this by the library's
// report and by the kernel's report, which is in /proc/self/numa_maps.
func heeded(seg *shm.Segment, pl shm.Placement) error {
	switch {
	case errors.Is(pl.Err, shm.ErrNotSupported):
		return cannot("%v", pl.Err)
	case pl.Err != nil:
		return pl.Err
	case !pl.Verified:
		return cannot("the system does not tell where pages are")
	}
	seen, err := pagesOf(seg)
	if err != nil {
		return err
	}
	if whole := pl.Len == seg.Size(); whole && seen != nil && fmt.Sprint(seen) != fmt.Sprint(pl.Nodes) {
		return fmt.Errorf("the library says %v, numa_maps says %v", pl.Nodes, seen)
	}
	for node := range pl.Nodes {
		if !slices.Contains(pl.Asked.Nodes, node) {
			return fmt.Errorf("%v: pages are on node %d", pl, node)
		}
	}
	return nil
}

// pagesOf returns how many pages of a memfd are on each node. Only pages that this process has touched count. pagesOf
// returns nil if the kernel does not report the nodes of pages.
func pagesOf(seg *shm.Segment) (map[int]int, error) {
	b, err := os.ReadFile("/proc/self/numa_maps")
	if err != nil {
		return nil, nil // a kernel without NUMA, or a sandbox
	}
	seen := map[int]int{}
	for line := range strings.Lines(string(b)) {
		if !strings.Contains(line, "/"+seg.Name()+`\040`) {
			continue
		}
		for _, field := range strings.Fields(line) {
			node, pages, ok := strings.Cut(strings.TrimPrefix(field, "N"), "=")
			if !ok || !strings.HasPrefix(field, "N") {
				continue
			}
			n, err1 := strconv.Atoi(node)
			k, err2 := strconv.Atoi(pages)
			if err := errors.Join(err1, err2); err != nil {
				return nil, fmt.Errorf("numa_maps: %q: %w", field, err)
			}
			seen[n] += k
		}
	}
	return seen, nil
}

// provePolicy creates a segment with a policy and checks that the policy is followed. If the policy is new in Linux,
// the kernel may refuse it, and then the library must report that.
func provePolicy(p shm.Policy) (string, error) {
	seg, pl, err := placed(p)
	if err != nil {
		return "", err
	}
	defer seg.Close()
	newer := p.Mode == shm.PolicyPreferredMany || p.Mode == shm.PolicyWeightedInterleave
	if newer && pl.Err != nil {
		if len(seg.Degraded()) == 0 {
			return "", fmt.Errorf("%v was refused, and Degraded does not say so", p)
		}
		return "", cannot("this kernel refuses it, and the library says so: %v", pl.Err)
	}
	if err := heeded(seg, pl); err != nil {
		return "", err
	}
	if p.Mode == shm.PolicyInterleave {
		for _, n := range p.Nodes {
			if got, share := pl.Nodes[n], selftestPages/len(p.Nodes); got < share-1 || got > share+1 {
				return "", fmt.Errorf("%v: node %d has %d pages, a fair share is %d", pl, n, got, share)
			}
		}
	}
	return pl.String(), nil
}

// proveRefused asks for memory on a node that has no memory. The library must report the refusal, and the segment must
// be usable all the same.
func proveRefused(node int) (string, error) {
	seg, pl, err := placed(shm.Policy{Mode: shm.PolicyBind, Nodes: []int{node}})
	if err != nil {
		return "", err
	}
	defer seg.Close()
	if pl.Err == nil {
		return "", fmt.Errorf("node %d has no memory, and yet: %v", node, pl)
	}
	if len(seg.Degraded()) == 0 {
		return "", errors.New("a segment does not tell of the refusal in Degraded")
	}
	seg.Bytes()[0]++
	return fmt.Sprintf("refused, and told: %v", pl.Err), nil
}

// proveFirstTouch makes a process on a CPU of the node touch memory that has no policy, and checks that the pages are
// on that node.
func (t *selftester) proveFirstTouch(n numaNode) (string, error) {
	seen, err := t.touched(n, shm.Policy{})
	if err != nil {
		return "", err
	}
	for node, pages := range seen {
		if n.Memory && node != n.ID || !slices.Contains(t.withMemory(), node) {
			return "", fmt.Errorf("CPU %d of node %d touched the pages, %d of them are on node %d", n.CPUs[0], n.ID, pages, node)
		}
	}
	return fmt.Sprintf("CPU %d touched: pages by node %v", n.CPUs[0], seen), nil
}

// proveOthersObey lets a process touch memory that another process has placed, and checks that the policy still
// applies.
func (t *selftester) proveOthersObey() (string, error) {
	memory := t.withMemory()
	last := memory[len(memory)-1]
	for _, n := range t.nodes {
		if len(n.CPUs) == 0 || n.ID == last && len(t.nodes) > 1 {
			continue
		}
		seen, err := t.touched(n, shm.Policy{Mode: shm.PolicyBind, Nodes: []int{last}})
		if err != nil {
			return "", err
		}
		if seen[last] != selftestPages {
			return "", fmt.Errorf("bound to node %d, touched by CPU %d: pages by node %v", last, n.CPUs[0], seen)
		}
		return fmt.Sprintf("bound to node %d, touched by CPU %d of node %d: pages by node %v", last, n.CPUs[0], n.ID, seen), nil
	}
	return "", cannot("no CPU of another node")
}

// touched creates a memfd, makes a process on the node touch it, and returns how many pages are on each node.
func (t *selftester) touched(n numaNode, p shm.Policy) (map[int]int, error) {
	seg, err := shm.CreateMemfd("selftest-touch", selftestBytes(), nil, &shm.Options{NUMA: p})
	if err != nil {
		return nil, err
	}
	defer seg.Close()
	if told := seg.Placement(); len(told) > 0 && told[0].Err != nil {
		return nil, cannot("%v", told[0].Err)
	}
	a, err := t.start(seg.File(), nil, "toucher", strconv.Itoa(n.CPUs[0]))
	if err != nil {
		return nil, err
	}
	if _, err := a.says(t, "touched"); err != nil {
		return nil, err
	}
	for off := 0; off < len(seg.Bytes()); off += os.Getpagesize() {
		if seg.Bytes()[off] != 1 {
			return nil, fmt.Errorf("what the other process wrote at %d is not here", off)
		}
	}
	seen, err := pagesOf(seg)
	if err == nil && seen == nil {
		err = cannot("no /proc/self/numa_maps")
	}
	if err == nil && len(seen) == 0 {
		err = errors.New("numa_maps knows no page of the segment")
	}
	return seen, err
}

// beToucher is the role of a process that writes to each page of the segment that it inherits.
func beToucher(args []string) error {
	if err := pinAgent(args); err != nil {
		return err
	}
	seg, err := shm.FromFile(os.NewFile(agentFD, "segment"), nil)
	if err != nil {
		return err
	}
	for off := 0; off < len(seg.Bytes()); off += os.Getpagesize() {
		seg.Bytes()[off] = 1
	}
	say("touched")
	return nil
}

// proveRanges places the two halves of a segment on different nodes.
func (t *selftester) proveRanges() (string, error) {
	memory := t.withMemory()
	if len(memory) < 2 {
		return "", cannot("one node with memory")
	}
	seg, err := shm.CreateMemfd("selftest-range", selftestBytes(), nil, nil)
	if err != nil {
		return "", err
	}
	defer seg.Close()
	half := seg.Size() / 2
	var told []string
	for i, node := range []int{memory[0], memory[len(memory)-1]} {
		pl := seg.Place(int64(i)*half, half, shm.Policy{Mode: shm.PolicyBind, Nodes: []int{node}})
		if err := heeded(seg, pl); err != nil {
			return "", err
		}
		told = append(told, pl.String())
	}
	seen, err := pagesOf(seg)
	if err != nil {
		return "", err
	}
	if seen != nil && (seen[memory[0]] != selftestPages/2 || seen[memory[len(memory)-1]] != selftestPages/2) {
		return "", fmt.Errorf("numa_maps says %v of %v", seen, told)
	}
	return strings.Join(told, "; "), nil
}

// proveMove moves memory to another node after it was touched. The contents must not change.
func (t *selftester) proveMove() (string, error) {
	memory := t.withMemory()
	if len(memory) < 2 {
		return "", cannot("one node with memory")
	}
	seg, pl, err := placed(shm.Policy{Mode: shm.PolicyBind, Nodes: memory[:1]})
	if err != nil {
		return "", err
	}
	defer seg.Close()
	if err := heeded(seg, pl); err != nil {
		return "", err
	}
	for i := range seg.Bytes() {
		seg.Bytes()[i] = byte(i)
	}
	pl = seg.Place(0, seg.Size(), shm.Policy{Mode: shm.PolicyBind, Nodes: memory[len(memory)-1:]})
	if err := heeded(seg, pl); err != nil {
		return "", err
	}
	for i, b := range seg.Bytes() {
		if b != byte(i) {
			return "", fmt.Errorf("byte %d changed as its page moved", i)
		}
	}
	return pl.String(), nil
}

// proveNoPolicy places memory in a process in which the system call for policies is disabled.
func (t *selftester) proveNoPolicy() (string, error) {
	a, err := t.start(nil, []string{"SHMSYNC_DISABLE=mbind"}, "placer")
	if err != nil {
		return "", err
	}
	return a.says(t, "told:")
}

// bePlacer is the role of a process that asks for a placement, which must be refused. It checks that the library
// reports the refusal, and that the memory is usable.
func bePlacer([]string) error {
	seg, pl, err := placed(shm.Policy{Mode: shm.PolicyBind, Nodes: []int{0}})
	if err != nil {
		return err
	}
	defer seg.Close()
	seg.Bytes()[0]++
	if !errors.Is(pl.Err, shmsync.ErrNotSupported) || len(seg.Degraded()) == 0 {
		return fmt.Errorf("a placement that cannot be was told as %v", pl)
	}
	say("told: %v", pl.Err)
	return nil
}

// proveArenaPlaced lets processes of all nodes use an arena whose memory is on the last node.
func (t *selftester) proveArenaPlaced() (string, error) {
	memory := t.withMemory()
	a, err := newSelftestArena(shm.Policy{Mode: shm.PolicyBind, Nodes: memory[len(memory)-1:]})
	if err != nil {
		return "", err
	}
	defer a.Close()
	pl := a.Segment().Placement()
	if len(pl) == 0 {
		return "", errors.New("nothing is told of the placement")
	}
	if pl[0].Err != nil {
		return "", cannot("%v", pl[0].Err)
	}
	if _, err := t.addUp(a, nil); err != nil {
		return "", err
	}
	seen, err := pagesOf(a.Segment())
	if err != nil {
		return "", err
	}
	for node, pages := range seen {
		if node != memory[len(memory)-1] {
			return "", fmt.Errorf("%d pages of an arena on node %d are on node %d", pages, memory[len(memory)-1], node)
		}
	}
	return fmt.Sprintf("%v, pages in use by node %v", pl[0].Asked, seen), nil
}

// newSelftestArena creates an arena in a memfd, and joins it.
func newSelftestArena(p shm.Policy) (*arena.Arena, error) {
	format := func(s *shm.Segment) error { return arena.Format(s, &arena.Options{Size: s.Size()}) }
	seg, err := shm.CreateMemfd("selftest-arena", bench.ArenaLeast, format, &shm.Options{NUMA: p})
	if err != nil {
		return nil, err
	}
	return arena.FromSegment(seg, &arena.Options{Label: "selftest"})
}
