//go:build linux

package load

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/shm"
)

// streamView is the interface that stream measurements need of their subject: memory that several threads share.
type streamView interface {
	Words() []uint64
	// Where reports on which NUMA nodes n words lie. The parameter from is the index of the first of them.
	Where(from, n int) ([]shm.Placement, error)
}

const (
	streamChunk = 4096 / 8 // words of a chunk; a stream reads the first words of each chunk and writes the others
	streamBlock = 64       // chunks between two reads of the clock
)

// These are the indices of the metrics of a thread of a stream measurement in its slot. The second histogram of the
// slot holds something else: the number of pages on each NUMA node.
const (
	streamChaseNs = iota
	streamBytes
	streamNs
	streamAbsent
)

// workStream follows a chain of loads in thread 0. All other threads stream, that is, they read and write memory in
// sequence as fast as they can.
func workStream(t *thread) error {
	v, err := as[streamView](t)
	if err != nil {
		return err
	}
	chain, part := int(t.N)<<20/8, int(t.Shape.Part)/8
	from, n := 0, chain
	if t.index > 0 {
		from, n = chain+(t.index-1)*part, part
	}
	words := v.Words()
	if from+n > len(words) {
		return fmt.Errorf("the memory has %d words, and thread %d needs %d", len(words), t.index, from+n)
	}
	words = words[from:][:n]
	if t.index == 0 {
		t.chaseOn(words)
	} else {
		t.streamOn(words)
	}
	parts, err := v.Where(from, n)
	if err != nil {
		t.unplaced(err)
	}
	for _, p := range parts {
		t.slot.Metrics[streamAbsent] += float64(p.Absent)
		for node, pages := range p.Nodes {
			t.others[node] += uint64(pages)
		}
	}
	return nil
}

// chaseOn times loads that cannot overlap, because the address of each load is the result of the load before it.
func (t *thread) chaseOn(words []uint64) {
	link(words, rand.New(rand.NewPCG(t.Seed, 7)))
	lines := len(words) / memLine
	var chase memCounter
	at, links := uint64(0), 0
	step := func(inside bool) {
		since := shmsync.Monotonic()
		here, n := at, links
		for range memChase {
			here = words[here*memLine]
			if n++; here == 0 && n%lines != 0 {
				t.violate("the chain came back after %d of %d links", n%lines, lines)
			}
		}
		at, links = here, n
		chase.add(inside, since, memChase)
		t.count(1)
	}
	t.await()
	for t.next() {
		step(t.inside)
	}
	if chase.n == 0 { // the thread did not get the CPU in time
		step(true)
	}
	t.end()
	t.slot.Metrics[streamChaseNs] = chase.ns / chase.n
}

// streamOn goes through its memory in passes. In each chunk it reads the first words, which are always 1, and writes
// the number of the pass into the other words. After each block of chunks it pauses, so that the thread streams only
// for the share of the time that the measurement prescribes.
func (t *thread) streamOn(words []uint64) {
	read := int(t.Shape.Read) * streamChunk / 100
	for i := range words {
		words[i] = 1
	}
	chunks := len(words) / streamChunk
	pass, at := uint64(2), 0
	var bytes, ns float64
	x := uint64(t.index)
	t.await()
	last := shmsync.Monotonic()
	for t.next() {
		since := shmsync.Monotonic()
		for range min(streamBlock, chunks) {
			chunk := words[at*streamChunk:][:streamChunk]
			if sum := sumWords(chunk[:read]); sum != uint64(read) {
				t.violate("words that nobody writes add up to %d, not to %d", sum, read)
			}
			for k := read; k < streamChunk; k++ {
				chunk[k] = pass
			}
			if at++; at == chunks {
				pass, at = pass+1, 0
			}
		}
		now := shmsync.Monotonic()
		if t.Shape.Duty < 100 {
			pause := uint64(now-since) * (100 - t.Shape.Duty) / t.Shape.Duty
			x = control.Work(control.Steps(pause, t.perNs), x)
			now = shmsync.Monotonic()
		}
		if t.inside && since >= t.slot.StartNs {
			bytes += float64(min(streamBlock, chunks) * streamChunk * 8)
			ns += float64(now - max(last, t.slot.StartNs))
		}
		last = now
		t.count(1)
	}
	t.end()
	for i := range chunks {
		want := pass - 1 // unless the last pass has reached this chunk
		if i < at {
			want = pass
		}
		if want > 1 && slices.ContainsFunc(words[i*streamChunk+read:(i+1)*streamChunk], func(w uint64) bool { return w != want }) {
			t.violate("a word of chunk %d was not written in pass %d", i, want)
		}
	}
	t.sink = x
	t.slot.Metrics[streamBytes], t.slot.Metrics[streamNs] = bytes, ns
}

func collectStream(rep *bench.Repetition, a *bench.Account) {
	m, shape := rep.Metrics, a.Cell.Stream
	p := &bench.Placement{Asked: shape.Data, Got: map[string]int{}}
	rate, right, all := 0.0, 0, 0
	for i := range a.Slots() {
		s, _ := a.Slot(i)
		if i == 0 && s.Metrics[streamChaseNs] > 0 {
			m["chase-ns"] = s.Metrics[streamChaseNs]
		}
		if s.Metrics[streamNs] > 0 {
			rate += s.Metrics[streamBytes] / s.Metrics[streamNs] * 1e3 // bytes per nanosecond are GB/s
		}
		p.Gone += int(s.Metrics[streamAbsent])
		for node, pages := range a.Other(i) {
			if pages == 0 {
				continue
			}
			p.Got[strconv.Itoa(node)] += int(pages)
			all += int(pages)
			if slices.Contains(shape.Asked(i), node) {
				right += int(pages)
			}
		}
		for _, node := range shape.Asked(i) {
			if !slices.Contains(p.Nodes, node) {
				p.Nodes = append(p.Nodes, node)
			}
		}
		if all == 0 {
			p.Note = text(s.Message[:])
		}
	}
	if rate > 0 {
		m["MB/s"] = rate
	}
	if all > 0 {
		m["as-asked-%"] = 100 * float64(right) / float64(all)
	}
	delete(m, "n")
	delete(m, "ctxsw/op")
	rep.Placement = p
}
