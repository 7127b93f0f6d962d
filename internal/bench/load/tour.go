//go:build linux

package load

import (
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// In a tour, one pair of processes visits many pairs of CPUs, one in each step. This saves time, because starting two
// processes takes a hundred times as long as measuring a pair of CPUs. The two processes are the first end, which
// measures, and the second end. The segment has a table of all steps. The parent writes the CPUs of each step into the
// table, and the first end writes its measurements into it. In each step, both ends move to their CPUs and then do this:
//
//	first end: wait until the second end has left the previous step; write 0 to both cache lines; arrive
//	second end: wait until the first end has arrived; arrive; answer until the first end has finished; leave
//	first end: wait until the second end has arrived; measure; finish
const (
	tourTable   = 64 << 10 // offset of the table; before it are the pages with the cache lines of each node
	tourStep    = 128      // size of a step; words that both ends share take 2*tourStep bytes before the first step
	tourWords   = 6        // words of a step before its samples
	tourSamples = 24
	tourTrips   = 32 // round trips of a sample
	tourWarm    = 64 // samples that are discarded
	tourHomes   = tourTable/pageBytes - 1
	pageBytes   = 4 << 10
)

// TourMost is the largest number of pairs of CPUs that a tour can visit.
const TourMost = (control.PeerBytes - tourTable - 2*tourStep) / tourStep

// table gives access to the table of a tour, which has a step for each pair of CPUs.
type table struct{ mem []byte }

func (t table) arrived(end int) *atomic.Uint32 { return control.WordAt(t.mem, tourTable+64*end) }
func (t table) left() *atomic.Uint32           { return control.WordAt(t.mem, tourTable+tourStep) }

// These are the indices of words in a step of a tour's table.
const (
	stepCPU      = iota // CPU of the first end; the next word has the CPU of the second end
	_                   //
	stepHome            // index of the page with the cache lines that the step uses
	stepMade            // number of samples
	stepTrips           // round trips, warm-up included
	stepAnswered        // round trips that the second end has counted
)

func (t table) word(step, word int) *atomic.Uint32 {
	return control.WordAt(t.mem, tourTable+2*tourStep+tourStep*step+4*word)
}

// lines returns the two words that the ends use to measure a pair of CPUs. The parameter home is the index of the page
// with these words. They are so far apart that no prefetcher fetches both.
func (t table) lines(home int) (first, second *atomic.Uint32) {
	return control.WordAt(t.mem, pageBytes*(1+home)), control.WordAt(t.mem, pageBytes*(1+home)+8*64)
}

// tourist is a subject that can use other cache lines in each step of a tour. The method On returns a shuttle that uses
// the given words.
type tourist interface {
	On(first, second *atomic.Uint32) any
}

// workTour takes one of the two ends through all steps of a tour.
func workTour(t *thread, k tourist) error {
	table := table{t.Mem}
	end := t.index
	t.await()
	for i := range int(t.N) {
		if err := place.PinThread(0, int(table.word(i, stepCPU+end).Load())); err != nil {
			return err
		}
		first, second := table.lines(int(table.word(i, stepHome).Load()))
		s, ok := k.On(first, second).(shuttle)
		if !ok || !t.tourAt(table, end, i, first, second) {
			break
		}
		if end == 1 {
			table.word(i, stepAnswered).Store(s.Answer())
			table.left().Store(uint32(i + 1))
			continue
		}
		if !t.measureStep(table, i, s) {
			break
		}
	}
	t.end()
	return nil
}

// tourAt does what one end has to do when it arrives at step i, and waits for the other end. It returns false if the
// tour stops.
func (t *thread) tourAt(table table, end, i int, first, second *atomic.Uint32) bool {
	if end == 0 {
		if !t.awaitTour(table.left(), uint32(i)) {
			return false
		}
		first.Store(0) // allocates the page, on the node of this CPU
		second.Store(0)
		table.arrived(0).Store(uint32(i + 1))
		return t.awaitTour(table.arrived(1), uint32(i+1))
	}
	if !t.awaitTour(table.arrived(0), uint32(i+1)) {
		return false
	}
	table.arrived(1).Store(uint32(i + 1))
	return true
}

// awaitTour spins until the word w is at least the given value. It returns false if the tour stops.
func (t *thread) awaitTour(w *atomic.Uint32, value uint32) bool {
	const looks = 1 << 16
	for n := 1; w.Load() < value; n++ {
		if n%looks == 0 && t.Phase.Load() == control.PhaseStop {
			return false
		}
	}
	return true
}

// measureStep times batches of round trips between the CPUs of step i. It returns false if the tour stops.
func (t *thread) measureStep(table table, i int, s shuttle) bool {
	number, whole := uint32(0), true
	for n := 0; n < tourWarm+tourSamples && whole; n++ {
		t0 := shmsync.Monotonic()
		made := s.Trips(number, tourTrips)
		ns := shmsync.Monotonic() - t0
		number += made
		whole = made == tourTrips
		if k := n - tourWarm; k >= 0 && whole {
			table.word(i, tourWords+k).Store(uint32(min(ns, 1<<32-1)))
			table.word(i, stepMade).Store(uint32(k + 1))
		}
	}
	table.word(i, stepTrips).Store(number)
	s.Finish(number)
	t.count(uint64(number))
	return whole
}

// Step is one step of a tour: a pair of CPUs, and the cell to which the measurement of this pair belongs. The memory
// that both ends use is on the node of the first CPU.
type Step struct {
	Cell *bench.Cell
	CPUs [2]int
}

// Tour has what the parent knows about a tour, in which one pair of processes measures many pairs of CPUs.
type Tour struct {
	table table
	steps []Step
}

// NewTour writes the table of a tour to the segment of a measurement.
func NewTour(segment *os.File, steps []Step) (*Tour, error) {
	mem, err := unix.Mmap(int(segment.Fd()), 0, control.PeerBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	t := &Tour{table{mem}, steps}
	homes := map[int]int{}
	for i, s := range steps {
		for end, cpu := range s.CPUs {
			t.table.word(i, stepCPU+end).Store(uint32(cpu))
		}
		node := hostPlaces()[s.CPUs[0]].node
		if _, ok := homes[node]; !ok {
			homes[node] = len(homes) % tourHomes
		}
		t.table.word(i, stepHome).Store(uint32(homes[node]))
	}
	return t, nil
}

// Done returns the number of steps that both processes of the tour have begun.
func (t *Tour) Done() int { return int(t.table.arrived(1).Load()) }

// Close unmaps the table of the tour.
func (t *Tour) Close() { unix.Munmap(t.table.mem) }

// Collect returns the repetition of each cell. A step that the two processes did not reach gets the given status and
// reason.
func (t *Tour) Collect(status, reason string) map[*bench.Cell]*bench.Repetition {
	parts := map[*bench.Cell][]*bench.Repetition{}
	for i, s := range t.steps {
		rep := t.collectStep(i, status, reason)
		if len(s.Cell.Pairs) > 0 && s.CPUs == s.Cell.Pairs[0] { // put it first, for reports name the first CPUs
			parts[s.Cell] = append([]*bench.Repetition{rep}, parts[s.Cell]...)
			continue
		}
		parts[s.Cell] = append(parts[s.Cell], rep)
	}
	reps := map[*bench.Cell]*bench.Repetition{}
	for c, list := range parts {
		reps[c] = joinPairs(list)
	}
	return reps
}

// joinPairs combines the repetitions of several pairs of CPUs into one. The combined repetition has the median of each
// metric, and the least and the greatest p50-ns of a pair. If a pair failed, joinPairs returns the repetition of that
// pair.
func joinPairs(list []*bench.Repetition) *bench.Repetition {
	if len(list) == 1 {
		return list[0]
	}
	all := &bench.Repetition{Status: bench.StatusOK, Metrics: map[string]float64{}, Div: 1}
	values := map[string][]float64{}
	for _, rep := range list {
		if rep.Status != bench.StatusOK {
			return rep
		}
		all.Workers = append(all.Workers, rep.Workers...)
		for name, v := range rep.Metrics {
			values[name] = append(values[name], v)
		}
	}
	for name, vs := range values {
		all.Metrics[name] = stats.Median(vs)
	}
	if vs := values["p50-ns"]; len(vs) > 0 {
		all.Metrics["least-pair-ns"], all.Metrics["most-pair-ns"] = slices.Min(vs), slices.Max(vs)
	}
	all.Metrics["visited-pairs"], all.Metrics["n"] = float64(len(list)), 0
	for _, n := range values["n"] {
		all.Metrics["n"] += n
	}
	return all
}

// collectStep returns the repetition for what step i measured.
func (t *Tour) collectStep(i int, status, reason string) *bench.Repetition {
	rep := &bench.Repetition{Status: bench.StatusOK, Metrics: map[string]float64{}, Div: 2 * tourTrips}
	made := min(int(t.table.word(i, stepMade).Load()), tourSamples)
	trips, answered := t.table.word(i, stepTrips).Load(), t.table.word(i, stepAnswered).Load()
	if made < tourSamples {
		rep.Status, rep.Reason = status, reason
		if status == bench.StatusOK {
			rep.Status, rep.Reason = bench.StatusCrashed, "the tour ended before this pair"
		}
		return rep
	}
	counts := make([]uint64, stats.HistBuckets)
	for k := range made {
		stats.Record(counts, int64(t.table.word(i, tourWords+k).Load()))
	}
	rep.Hist = stats.NewHist(counts)
	rep.Metrics["mean-ns"], rep.Metrics["n"] = rep.Hist.Mean()/rep.Div, float64(trips)
	batchMeans(rep, nil, stats.TailMin)
	for end := range 2 {
		rep.Workers = append(rep.Workers, bench.WorkerReport{CPU: int(t.table.word(i, stepCPU+end).Load()), Ops: uint64(trips)})
	}
	if trips != answered {
		rep.Violate("%d round trips were made, and %d answered", trips, answered)
	}
	return rep
}
