//go:build linux

package load

import (
	"bytes"
	"math/rand/v2"
	"strconv"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/shm"
)

// memoryView is the interface that mem measurements need of their subject: a lock, and memory in the same arena.
type memoryView interface {
	bench.Locker
	Words() []uint64
	// Where returns where the memory is, and how many bytes of it this process has mapped by huge
	// pages.
	Where() ([]shm.Placement, int64, error)
}

const (
	memLine  = 16   // words from one link of the chain to the next: two cache lines, because CPUs fetch lines in pairs
	memChase = 4096 // links that are followed between two reads of the clock
	memHolds = 512  // holds of the lock between two reads of the clock
	memData  = 1    // index of the data word in a line
)

// These are the indices of the metrics of a thread of a mem measurement in its slot. The second histogram of the slot
// holds something else: the number of pages on each NUMA node.
const (
	memChaseNs = iota
	memScanRate
	memHoldNs
	memAbsent
	memHuge
	memHeld
)

// memCounter adds up the time and the number of memory accesses of one kind, for one thread.
type memCounter struct {
	ns, n float64
}

func (m *memCounter) add(inside bool, since int64, n int) {
	if inside {
		m.ns += float64(shmsync.Monotonic() - since)
		m.n += float64(n)
	}
}

// workMem measures three kinds of access in turn: it follows a chain of links through the memory, it scans the memory,
// and it writes under the lock.
func workMem(t *thread) error {
	v, err := as[memoryView](t)
	if err != nil {
		return err
	}
	words := v.Words()
	lines := len(words) / memLine
	rng := rand.New(rand.NewPCG(t.Seed, 7))
	link(words, rng)
	expected := uint64(lines) * uint64(lines-1) / 2
	var counters [3]memCounter
	chase, scan, hold := &counters[0], &counters[1], &counters[2]
	at, links, held := uint64(0), 0, uint64(0)
	step := func(kind int, inside bool) {
		since := shmsync.Monotonic()
		switch kind {
		case 0:
			here, n := at, links
			for range memChase {
				here = words[here*memLine]
				if n++; here == 0 && n%lines != 0 {
					t.violate("the chain came back after %d of %d links", n%lines, lines)
				}
			}
			at, links = here, n
			chase.add(inside, since, memChase)
		case 1:
			sum := sumWords(words)
			scan.add(inside, since, len(words)*8)
			if want := expected + held*bench.MemTouch; sum != want {
				t.violate("all words add up to %d, not to %d", sum, want)
				expected += sum - want // the next scans must not report the same error again, because one violation is enough
			}
		case 2:
			for range memHolds {
				line := rng.IntN(lines)
				v.Lock()
				for k := range bench.MemTouch {
					words[(line+k*lines/bench.MemTouch)%lines*memLine+memData]++
				}
				t.Counter++
				v.Unlock()
			}
			held += memHolds
			hold.add(inside, since, memHolds)
		}
		t.count(1)
	}
	t.await()
	for turn := 0; t.next(); turn++ {
		step(turn%len(counters), t.inside)
	}
	for kind := range counters { // if the thread got too little CPU time to measure a kind of access, measure it now
		if counters[kind].n == 0 {
			step(kind, true)
		}
	}
	t.end()
	m := &t.slot.Metrics
	m[memChaseNs], m[memHoldNs] = chase.ns/max(chase.n, 1), hold.ns/max(hold.n, 1)
	m[memScanRate] = scan.n / max(scan.ns, 1) * 1e3 // bytes per nanosecond are GB/s
	m[memHeld] = float64(held)
	parts, huge, err := v.Where()
	if err != nil {
		t.unplaced(err)
	}
	m[memHuge] = float64(huge)
	for _, part := range parts {
		m[memAbsent] += float64(part.Absent)
		for node, pages := range part.Nodes {
			t.others[node] += uint64(pages)
		}
	}
	return nil
}

// link makes one chain of all cache lines, in random order: the first word of a line says which line is next. The chain
// returns to its beginning after it has visited all lines (Sattolo's algorithm).
func link(words []uint64, rng *rand.Rand) {
	lines := len(words) / memLine
	for i := range lines {
		words[i*memLine] = uint64(i)
	}
	for i := lines - 1; i > 0; i-- {
		j := rng.IntN(i)
		words[i*memLine], words[j*memLine] = words[j*memLine], words[i*memLine]
	}
}

// sumWords adds up all words, four at a time.
func sumWords(words []uint64) uint64 {
	var a, b, c, d uint64
	for len(words) >= 4 {
		a, b, c, d = a+words[0], b+words[1], c+words[2], d+words[3]
		words = words[4:]
	}
	for _, w := range words {
		a += w
	}
	return a + b + c + d
}

// text returns the part of b before the first zero byte, as a string.
func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

func collectMem(rep *bench.Repetition, a *bench.Account) {
	s, _ := a.Slot(0)
	if held := uint64(s.Metrics[memHeld]); a.Counter != held {
		rep.Violate("counter under the lock is %d after %d holds", a.Counter, held)
	}
	shape := a.Cell.Mem
	p := &bench.Placement{Asked: shape.PolicyName(), Nodes: shape.Asked(), Got: map[string]int{}, Gone: int(s.Metrics[memAbsent]), Huge: int64(s.Metrics[memHuge])}
	for node, pages := range a.Other(0) {
		if pages > 0 {
			p.Got[strconv.Itoa(node)] = int(pages)
		}
	}
	m := rep.Metrics
	if s.Metrics[memChaseNs] > 0 {
		m["chase-ns"] = s.Metrics[memChaseNs]
	}
	if s.Metrics[memScanRate] > 0 {
		m["scan-MB/s"] = s.Metrics[memScanRate]
	}
	if s.Metrics[memHoldNs] > 0 {
		m["data-ns"] = s.Metrics[memHoldNs]
	}
	if len(p.Got) == 0 {
		p.Note = text(s.Message[:])
	} else {
		m["as-asked-%"] = p.Heeded()
	}
	m["huge-%"] = 100 * s.Metrics[memHuge] / float64(a.N<<20)
	delete(m, "n")
	delete(m, "ctxsw/op")
	rep.Placement = p
}
