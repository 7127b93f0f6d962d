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
	tortureThreads   = 4  // goroutines of a resident for each job
	tortureJobsMost  = 32 // number of jobs for which the page has room
	tortureTexts     = 16
	tortureFinished  = 4096 // number of finished operations of a resident in C for which the page has room
)

// torturePage is memory that the processes of a torture share outside of the arena, so that they can use it even if the
// arena is damaged. The comment of a field begins with the process that writes it.
type torturePage struct {
	_       structs.HostLayout
	magic   uint64
	seed    uint64
	only    uint64 // the jobs that take part, as bits
	workers uint32
	bound   int64 // ns that an operation of a resident may take

	waitLimit int64 // ns within which the check between two rounds must succeed

	phase   atomic.Uint32 // parent: see torturePhaseEnd
	referee atomic.Uint32 // parent: the number of the last round in which all residents have paused
	judged  atomic.Uint32 // resident 0: the number of the last round whose check is complete
	busy    atomic.Uint32 // parent: thousandths of the CPU time that other programs take
	faults  atomic.Uint32 // anybody: how many promises were broken
	text    [tortureTexts]struct {
		n     atomic.Uint32
		bytes [1020]byte
	}

	// rollbacks is the number of rollbacks that victims in C began. died is the number of victims in C that died in a
	// rollback. rollbacksOfResidents is the number of rollbacks that residents in C began.
	inC struct{ rollbacks, died, rollbacksOfResidents atomic.Uint64 }

	left struct{ objects, bytes atomic.Uint64 } // resident 0: what the arena contains while all processes pause

	deaths spans // parent or victim: one period for each death, which begins just before the death
	stops  spans // parent: periods in which a process was stopped

	lane [tortureLanes]struct {
		ready atomic.Uint32 // victim: the number of the victim plus 1, as soon as it works
		_     [60]byte
		noise spans        // victims: periods in which their control threads had no CPU
		until atomic.Int64 // victim: when its control thread should wake; parent: 0 when the victim has ended
	}
	worker [tortureResidents]tortureSlot

	board tortureBoard
}

// tortureSlot is what one resident reports. If the resident dies, its successor uses the same slot.
type tortureSlot struct {
	pid    atomic.Uint32
	at     atomic.Uint32 // the round in which the resident works
	calm   atomic.Uint32 // the last round in which only goroutines with the number 0 were left
	still  atomic.Uint32 // the last round in which all goroutines have ended
	turns  [tortureJobsMost]atomic.Uint64
	since  [tortureJobsMost][tortureThreads]atomic.Int64 // when the present operation began; 0 between operations
	worst  [tortureJobsMost]atomic.Int64                 // ns of the longest operation
	noise  spans                                         // periods in which threads of the resident waited for a CPU
	until  atomic.Int64                                  // when the control thread of the resident should wake
	counts [tortureHists][stats.HistBuckets]atomic.Uint64
	long   atomic.Uint64 // operations longer than the bound
	beyond atomic.Uint64 // of these, those longer than the bound even if stops and CPU waits do not count; see excuses
	others atomic.Uint64 // of the operations in beyond, those that ended while other programs took much CPU time

	// A resident in C writes the begin and end of its last operations here, and the parent computes their durations.
	// The value of turn.of is the index of the job times tortureThreads, plus the number of the thread.
	finished struct {
		n    atomic.Uint64
		turn [tortureFinished]struct {
			from, to atomic.Int64
			of       atomic.Uint64
		}
	}
}

// The histograms of a resident. Each counts durations.
const (
	tortureTurns     = iota // every operation
	tortureInherited        // from the first death during an operation to the end of the operation
	tortureThread           // how late a thread wakes from a sleep
	tortureGoroutine        // how late a goroutine wakes from a sleep
	tortureHists
)

// spans is a ring buffer of periods. It keeps the last tortureSpans of them.
type spans struct {
	n    atomic.Uint64
	span [tortureSpans]struct{ from, to atomic.Int64 }
}

// begin adds a period that begins at the time from, and returns its number. The method end, with this number, stores
// the end of the period.
func (s *spans) begin(from int64) (i uint64) {
	i = s.n.Add(1) - 1
	x := &s.span[i%tortureSpans]
	x.to.Store(0)
	x.from.Store(from)
	return i
}

func (s *spans) end(i uint64, to int64) { s.span[i%tortureSpans].to.Store(to) }

// each calls f for each period that overlaps the time from the parameter from to the parameter to. f gets the part of
// the period that lies within this time. If a period has no end yet, its part lasts until the end of this time.
func (s *spans) each(from, to int64, f func(from, to int64)) {
	n := s.n.Load()
	for i := n - min(n, tortureSpans); i < n; i++ {
		x := &s.span[i%tortureSpans]
		a, b := x.from.Load(), x.to.Load()
		if b == 0 {
			b = to // the period has not ended
		}
		if a, b = max(a, from), min(b, to); a != 0 && a < b {
			f(a, b)
		}
	}
}

// fault records a broken promise, and its description.
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

// histogram returns the sum of one histogram over all residents.
func (p *torturePage) histogram(which int) []uint64 {
	sum := make([]uint64, stats.HistBuckets)
	for s := range p.workers {
		for i := range sum {
			sum[i] += p.worker[s].counts[which][i].Load()
		}
	}
	return sum
}

// pageFlags returns compiler flags that define for worker.c where the fields are on the page.
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

// newTorturePage creates a page of zeros in a memfd.
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

// since returns how many nanoseconds have passed since start.
func since(start int64) int64 { return shmsync.Monotonic() - start }
