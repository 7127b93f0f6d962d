//go:build linux

package main

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/shm"
)

type memCmd struct{}

// Run runs the scenario.
func (memCmd) Run(s *session) error { return s.measure(usual, commandScenarios["mem"]...) }

// Help describes the cells.
func (memCmd) Help() string {
	return `A worker on a CPU of each of --nodes goes through the memory of an arena that is placed as
each of --mem says: first-touch, bind:1, prefer:0, prefer-many:0-1, interleave:0-1,
weighted:0-1; without nodes each of them in turn, or all. It has pages as --huge says: none
(the usual ones), thp, 2M, 1G. chase-ns is a load that depends on the one before,
scan-MB/s one stream of loads, data-ns a lock of the arena and a few lines of its memory
under it. What was asked is held against where the pages are. Checked: the chain of loads
comes back, all words add up, and the counter under the lock is the number of holds.`
}

// memoryView is what mem cells need: a lock, and memory beside it in one arena.
type memoryView interface {
	locker
	Words() []uint64
	// Where tells where the memory is, and how much of it this process has
	// mapped by huge pages, in bytes.
	Where() ([]shm.Placement, int64, error)
}

const (
	memLine  = 16   // words from one link of the chain to the next: two cache lines, since CPUs fetch by twos
	memChase = 4096 // links between two looks at the clock
	memHolds = 512  // holds of the lock likewise
	memTouch = 8    // lines that are written under the lock
	memData  = 1    // the word of a line that is
)

// Places of what a thread of a mem cell reports in its slot. Its second histogram
// has the number of pages on each node.
const (
	memChaseNs = iota
	memScanRate
	memHoldNs
	memAbsent
	memHuge
	memHeld
)

// memTally is what a thread has measured of one kind of access.
type memTally struct {
	ns, n float64
}

func (m *memTally) add(inside bool, since int64, n int) {
	if inside {
		m.ns += float64(shmsync.Monotonic() - since)
		m.n += float64(n)
	}
}

// workMem chases, scans, and writes under the lock, in turn.
func workMem(t *thread) error {
	v, err := as[memoryView](t)
	if err != nil {
		return err
	}
	words := v.Words()
	lines := len(words) / memLine
	rng := rand.New(rand.NewPCG(t.seed, 7))
	link(words, rng)
	expected := uint64(lines) * uint64(lines-1) / 2
	var tallies [3]memTally
	chase, scan, hold := &tallies[0], &tallies[1], &tallies[2]
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
			if want := expected + held*memTouch; sum != want {
				t.violate("all words add up to %d, not to %d", sum, want)
				expected += sum - want // once is enough
			}
		case 2:
			for range memHolds {
				line := rng.IntN(lines)
				v.Lock()
				for k := range memTouch {
					words[(line+k*lines/memTouch)%lines*memLine+memData]++
				}
				t.counter++
				v.Unlock()
			}
			held += memHolds
			hold.add(inside, since, memHolds)
		}
		t.count(1)
	}
	t.await()
	for turn := 0; t.next(); turn++ {
		step(turn%len(tallies), t.inside)
	}
	for kind := range tallies { // this CPU may have had no time for it
		if tallies[kind].n == 0 {
			step(kind, true)
		}
	}
	t.end()
	m := &t.slot.metrics
	m[memChaseNs], m[memHoldNs] = chase.ns/max(chase.n, 1), hold.ns/max(hold.n, 1)
	m[memScanRate] = scan.n / max(scan.ns, 1) * 1e3 // bytes in a nanosecond are GB/s
	m[memHeld] = float64(held)
	parts, huge, err := v.Where()
	if err != nil {
		copy(t.slot.message[:messageBytes-1], err.Error())
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

// link makes one chain of the first words of all lines, in random order, that comes
// back after all of them: Sattolo's algorithm.
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

// placement is what was asked for the memory of a cell, and where it was.
type placement struct {
	Asked string         `json:"asked"`          // as a policy of package shm, or first-touch
	Nodes []int          `json:"nodes"`          // that pages should be on
	Got   map[string]int `json:"got"`            // pages, by node
	Gone  int            `json:"gone,omitempty"` // pages that could not be found
	Huge  int64          `json:"huge"`           // bytes that were mapped by huge pages
	Note  string         `json:"note,omitempty"` // why it is not known
}

// heeded is how much of the memory is where it should be, in percent.
func (p *placement) heeded() float64 {
	on, all := 0, 0
	for node, pages := range p.Got {
		if n, err := strconv.Atoi(node); err == nil && slices.Contains(p.Nodes, n) {
			on += pages
		}
		all += pages
	}
	return 100 * float64(on) / float64(max(all, 1))
}

// text is what stands before the first zero.
func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

func collectMem(rep *repetition, a *account) {
	s, _ := a.slot(0)
	if held := uint64(s.metrics[memHeld]); a.counter != held {
		rep.violate("counter under the lock is %d after %d holds", a.counter, held)
	}
	shape := a.cell.Mem
	p := &placement{Asked: shape.policyName(), Nodes: shape.asked(), Got: map[string]int{}, Gone: int(s.metrics[memAbsent]), Huge: int64(s.metrics[memHuge])}
	for node, pages := range a.other(0) {
		if pages > 0 {
			p.Got[strconv.Itoa(node)] = int(pages)
		}
	}
	m := rep.Metrics
	if s.metrics[memChaseNs] > 0 {
		m["chase-ns"] = s.metrics[memChaseNs]
	}
	if s.metrics[memScanRate] > 0 {
		m["scan-MB/s"] = s.metrics[memScanRate]
	}
	if s.metrics[memHoldNs] > 0 {
		m["data-ns"] = s.metrics[memHoldNs]
	}
	if len(p.Got) == 0 {
		p.Note = text(s.message[:])
	} else {
		m["as-asked-%"] = p.heeded()
	}
	m["huge-%"] = 100 * s.metrics[memHuge] / float64(a.n<<20)
	delete(m, "n")
	delete(m, "ctxsw/op")
	rep.Placement = p
}

// memLeastTime is how long a mem cell measures at least: a few times through the
// memory, on a slow machine.
const memLeastTime = 60 * time.Millisecond

// memMiBTime is how long a worker takes to have a MiB, and to link it.
const memMiBTime = 2 * time.Millisecond
