//go:build linux

package torture

import (
	"errors"
	"fmt"
	"os"
	"structs"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

const (
	tortureMagic     = 0x3165727574726f74 // "torture1"
	tortureResidents = 8
	tortureLanes     = 64
	tortureSpans     = 4096
	tortureThreads   = 4  // goroutines of each job of a resident
	tortureJobsMost  = 32 // number of jobs for which the page has room
	tortureTexts     = 16
	tortureFinished  = 4096 // turns of a resident in C that wait for the parent
)

// torturePage is memory that the processes of a torture share beside the arena, so
// that they can use it when the arena is damaged. Each field says who writes it.
type torturePage struct {
	_       structs.HostLayout
	magic   uint64
	seed    uint64
	only    uint64 // jobs that take part, as bits
	workers uint32
	bound   int64 // ns that a survivor may wait

	waitLimit int64 // ns until the end of a round must be as it should

	phase   atomic.Uint32 // parent: see torturePhaseEnd
	referee atomic.Uint32 // parent: all are calm in this round
	judged  atomic.Uint32 // resident 0: and this is found
	busy    atomic.Uint32 // parent: thousandths of the CPUs that others take
	faults  atomic.Uint32 // anybody: how many promises were broken
	text    [tortureTexts]struct {
		n     atomic.Uint32
		bytes [1020]byte
	}

	// victims in C: how often one began to roll back, and how many died in that; residents in C: the same first count
	inC struct{ rollbacks, died, rollbacksOfResidents atomic.Uint64 }

	left struct{ objects, bytes atomic.Uint64 } // resident 0 writes it: what the arena contains while no turns are taken

	deaths spans // the victim: from just before it on
	stops  spans // parent: a process is stopped

	lane [tortureLanes]struct {
		ready atomic.Uint32 // victim: its number and 1
		_     [60]byte
		noise spans        // victims: their control threads
		until atomic.Int64 // victim: its control thread sleeps until then; parent: 0 when it is gone
	}
	worker [tortureResidents]tortureSlot

	board tortureBoard
}

// tortureSlot is what one resident reports. Its successor goes on with it.
type tortureSlot struct {
	pid    atomic.Uint32
	at     atomic.Uint32 // the round in which it works
	calm   atomic.Uint32 // of this round, the jobs that do not keep others going have ended
	still  atomic.Uint32 // all have
	turns  [tortureJobsMost]atomic.Uint64
	since  [tortureJobsMost][tortureThreads]atomic.Int64 // a turn began; 0 between turns
	worst  [tortureJobsMost]atomic.Int64                 // ns of the longest turn
	noise  spans                                         // of its threads
	until  atomic.Int64                                  // it sleeps until then
	counts [tortureHists][stats.HistBuckets]atomic.Uint64
	long   atomic.Uint64 // turns longer than the bound
	beyond atomic.Uint64 // of the long turns, those that are longer also without the time that the library is not to blame for
	others atomic.Uint64 // of these, those during which other programs took the CPUs

	// A resident in C writes its last turns here, and the parent measures them. Of is the job times tortureThreads, and the
	// number of the thread.
	finished struct {
		n    atomic.Uint64
		turn [tortureFinished]struct {
			from, to atomic.Int64
			of       atomic.Uint64
		}
	}
}

// Histograms of a resident.
const (
	tortureTurns     = iota // every turn
	tortureInherited        // from the first death during a turn to the end of the turn
	tortureThread           // how late a thread is that sleeps
	tortureGoroutine        // how late a goroutine is that sleeps
	tortureHists
)

// spans is a ring of spans of time, of which the last ones are there.
type spans struct {
	n    atomic.Uint64
	span [tortureSpans]struct{ from, to atomic.Int64 }
}

// begin starts a span, which end ends.
func (s *spans) begin(from int64) (i uint64) {
	i = s.n.Add(1) - 1
	x := &s.span[i%tortureSpans]
	x.to.Store(0)
	x.from.Store(from)
	return i
}

func (s *spans) end(i uint64, to int64) { s.span[i%tortureSpans].to.Store(to) }

// each calls f with those parts of the spans that lie between the offsets from and to.
func (s *spans) each(from, to int64, f func(from, to int64)) {
	n := s.n.Load()
	for i := n - min(n, tortureSpans); i < n; i++ {
		x := &s.span[i%tortureSpans]
		a, b := x.from.Load(), x.to.Load()
		if b == 0 {
			b = to // it has not ended
		}
		if a, b = max(a, from), min(b, to); a != 0 && a < b {
			f(a, b)
		}
	}
}

// fault notes a broken promise.
func (p *torturePage) fault(format string, args ...any) {
	i := p.faults.Add(1) - 1
	if i >= tortureTexts {
		return
	}
	t := &p.text[i]
	t.n.Store(uint32(copy(t.bytes[:], fmt.Sprintf(format, args...))))
}

// failures returns the texts of the faults. A worker may be killed before it has written its text.
func (p *torturePage) failures() (texts []string) {
	for i := range min(p.faults.Load(), tortureTexts) {
		t := &p.text[i]
		text := "a worker found a fault, and ended before it had written which"
		if n := t.n.Load(); n != 0 {
			text = string(t.bytes[:min(n, uint32(len(t.bytes)))])
		}
		texts = append(texts, text)
	}
	return texts
}

// histogram gives the counters of all residents.
func (p *torturePage) histogram(which int) []uint64 {
	sum := make([]uint64, stats.HistBuckets)
	for s := range p.workers {
		for i := range sum {
			sum[i] += p.worker[s].counts[which][i].Load()
		}
	}
	return sum
}

// pageFlags tell worker.c where things are on the page.
func pageFlags() (flags []string) {
	var p torturePage
	lane := unsafe.Offsetof(p.lane)
	var resident tortureSlot
	for _, f := range []struct {
		name string
		is   uintptr
	}{
		{"BYTES", unsafe.Sizeof(p)}, {"SPANS", tortureSpans}, {"WITNESS", unsafe.Sizeof(p.board.locks[0])}, {"TEXTS", tortureTexts},
		{"FAULTS", unsafe.Offsetof(p.faults)}, {"TEXT", unsafe.Offsetof(p.text)}, {"DEATHS", unsafe.Offsetof(p.deaths)},
		{"ROLLBACKS", unsafe.Offsetof(p.inC) + unsafe.Offsetof(p.inC.rollbacks)}, {"DIED_INSIDE", unsafe.Offsetof(p.inC) + unsafe.Offsetof(p.inC.died)},
		{"RESIDENT_ROLLBACKS", unsafe.Offsetof(p.inC) + unsafe.Offsetof(p.inC.rollbacksOfResidents)},
		{"PHASE", unsafe.Offsetof(p.phase)}, {"PHASE_END", torturePhaseEnd}, {"REFEREE", unsafe.Offsetof(p.referee)},
		{"RESIDENTS", unsafe.Offsetof(p.workers)}, {"THREADS", tortureThreads}, {"FINISHED", tortureFinished},
		{"RESIDENT", unsafe.Offsetof(p.worker)}, {"RESIDENT_SIZE", unsafe.Sizeof(resident)},
		{"RESIDENT_PID", unsafe.Offsetof(resident.pid)}, {"RESIDENT_AT", unsafe.Offsetof(resident.at)},
		{"RESIDENT_CALM", unsafe.Offsetof(resident.calm)}, {"RESIDENT_STILL", unsafe.Offsetof(resident.still)},
		{"RESIDENT_TURNS", unsafe.Offsetof(resident.turns)}, {"RESIDENT_SINCE", unsafe.Offsetof(resident.since)},
		{"RESIDENT_NOISE", unsafe.Offsetof(resident.noise)}, {"RESIDENT_UNTIL", unsafe.Offsetof(resident.until)},
		{"RESIDENT_FINISHED", unsafe.Offsetof(resident.finished)},
		{"LANE", unsafe.Sizeof(p.lane[0])}, {"READY", lane + unsafe.Offsetof(p.lane[0].ready)},
		{"NOISE", lane + unsafe.Offsetof(p.lane[0].noise)}, {"UNTIL", lane + unsafe.Offsetof(p.lane[0].until)},
		{"LOCKS", unsafe.Offsetof(p.board) + unsafe.Offsetof(p.board.locks)},
		{"LOCK_SYNCHRONIZED", lockSynchronized}, {"LOCK_TX", lockTx}, {"LOCK_RWTX", lockRWTx},
	} {
		flags = append(flags, fmt.Sprintf("-DPAGE_%s=%d", f.name, f.is))
	}
	return flags
}

// newTorturePage makes a page of zeros.
func newTorturePage() (*torturePage, *os.File, error) {
	f, err := control.NewMemfd("shmbench-torture", int64(unsafe.Sizeof(torturePage{})))
	if err != nil {
		return nil, nil, err
	}
	p, err := mapTorturePage(f)
	return p, f, err
}

func mapTorturePage(f *os.File) (*torturePage, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if uintptr(st.Size()) < unsafe.Sizeof(torturePage{}) {
		return nil, errors.New("the descriptor is no page of a torture")
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(unsafe.Sizeof(torturePage{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	// SAFETY: mappings are page-aligned, and the file is long enough.
	return (*torturePage)(unsafe.Pointer(&mem[0])), nil
}

func (p *torturePage) unmap() {
	// SAFETY: the mapping is that of mapTorturePage.
	unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(torturePage{})))
}

// since gives the nanoseconds that passed.
func since(start int64) int64 { return shmsync.Monotonic() - start }
