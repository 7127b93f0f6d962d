//go:build linux

package control

import (
	"os"
	"structs"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/bench/stats"
)

// These constants describe the control page, through which the parent and its workers, in Go and in C, communicate. The
// C header peer.h declares the same bytes, and both sides assert the offsets at compile time.
const (
	Magic          = 0x3168636e65626d73 // "smbench1"
	controlBytes   = 4096
	slotHeadBytes  = 4096
	slotBytes      = slotHeadBytes + 2*stats.HistBuckets*8
	slotsAt        = controlBytes + scratchBytes
	PrimBytes      = 32
	MessageBytes   = 256
	slotMetrics    = 8
	SlotFrom       = 64
	ControlFD      = 3
	SegmentFD      = 4
	FirstSubjectFD = 5
	SegmentBytes   = 64 << 20 // size of the sparse file with the subject under test
	PeerBytes      = 1 << 20  // the part of the segment that peers map
)

// These are the phases of a measurement, in the order in which the parent stores them in the control page.
const (
	phaseWarmup = iota
	PhaseMeasure
	PhaseStop
)

// These are the states of a slot, the memory in which a thread leaves its results.
const (
	slotEmpty = iota
	SlotReady
	SlotDone
	SlotFailed
)

// Control is the head of the control page. It begins with the plan, which nothing changes after the first worker has
// started. Each word on which a process spins or sleeps has a cache line of its own.
type Control struct {
	_        structs.HostLayout
	Magic    uint64
	Scenario uint32
	Procs    uint32
	Threads  uint32 // threads of each process
	Huge     uint32 // of a mem cell: the value of shm.HugePages
	CSNs     uint64
	ThinkNs  uint64
	GapNs    uint64
	Seed     uint64
	N        uint64 // number of waiters of a waiters cell
	Batch    uint64 // pairs of lock and unlock per sample of an uncontended cell
	_        [24]byte
	Prim     [PrimBytes]byte

	Setup   atomic.Uint32 // becomes 1 when process 0 has initialised the subject
	_       [60]byte
	Ready   atomic.Uint32 // threads that wait for the start instant
	_       [60]byte
	Started atomic.Uint32 // a futex; becomes 1 when StartNs is valid
	_       [4]byte
	StartNs atomic.Int64 // absolute CLOCK_MONOTONIC
	_       [48]byte
	Phase   atomic.Uint32
	_       [60]byte

	// A crash measurement kills a process in each round, and these words synchronize its rounds. Each 32-bit word is a
	// futex with the number of a round: the last round in which the event of the word has happened. The comment of a
	// word names the process that writes the word, and the event.
	VictimGo   atomic.Uint32 // parent: the victim may lock
	Held       atomic.Uint32 // victim: it holds the lock
	SurvivorGo atomic.Uint32 // parent: the survivor may queue up
	Trying     atomic.Uint32 // survivor: about to block
	Owned      atomic.Uint32 // survivor: it has owned the lock, and has released it
	_          [4]byte
	KilledNs   atomic.Int64  // parent: the instant just before kill(2); 0 while the victim lives
	SecondGo   atomic.Uint32 // parent: the second of the survivor's goroutines may queue up
	Queued     atomic.Uint32 // survivor: its second goroutine is about to block
	KilledGo   atomic.Uint32 // parent: the victim was killed
	_          [20]byte

	StampNs atomic.Int64 // wake cells: the instant just before the token is passed
	_       [56]byte

	Counter uint64 // guarded by the lock under test, so it is not atomic
	Holder  uint64 // also guarded: 1 plus the index of the slot whose thread held the lock last; 0: none
	_       [48]byte

	Think [Thinks]float32 // think times, as multiples of the mean think time
	Shape Shape
}

// Slot is the report of one worker thread. The two histograms of the thread follow the Slot in memory.
type Slot struct {
	_          structs.HostLayout
	PID        uint32
	TID        uint32
	CPU        int32 // the requested CPU; -1 if unpinned
	State      atomic.Uint32
	Total      uint64 // operations, warm-up included
	Ops        uint64 // operations measured
	StartNs    int64
	EndNs      int64
	Violations uint64
	Nvcsw      uint64
	Nivcsw     uint64
	UserNs     uint64
	SysNs      uint64
	ItersPerNs float64 // result of calibrating the work loop
	Metrics    [slotMetrics]float64
	Message    [MessageBytes]byte
	From       [SlotFrom]uint64 // for each slot: how often the lock passed from the thread of that slot to this thread
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.Prim)-96]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.Setup)-128]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.Ready)-192]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.Started)-256]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.StartNs)-264]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.Phase)-320]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.VictimGo)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.KilledNs)-408]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.StampNs)-448]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.Counter)-512]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.Think)-576]
	_ = [1]struct{}{}[unsafe.Offsetof(Slot{}.Total)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(Slot{}.ItersPerNs)-88]
	_ = [1]struct{}{}[unsafe.Offsetof(Slot{}.Metrics)-96]
	_ = [1]struct{}{}[unsafe.Offsetof(Slot{}.Message)-160]
	_ = [1]struct{}{}[unsafe.Offsetof(Slot{}.From)-416]
	_ = [1]struct{}{}[unsafe.Sizeof(Slot{})-928]
)

// Page is a mapped control page, through which parent and workers communicate, with a slot for the results of each
// thread.
type Page struct {
	*Control
	File *os.File
	mem  []byte
}

// NewPage creates a zeroed control page with room for the given number of threads.
func NewPage(slots int) (*Page, error) {
	f, err := NewMemfd("shmbench-control", slotsAt+int64(slots)*slotBytes)
	if err != nil {
		return nil, err
	}
	return MapPage(f)
}

// MapPage maps the control page in f. The Page owns f from then on.
func MapPage(f *os.File) (*Page, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	// SAFETY: mappings are page-aligned and the file is at least a page long.
	return &Page{Control: (*Control)(unsafe.Pointer(&mem[0])), File: f, mem: mem}, nil
}

// Close unmaps the page and closes its file.
func (p *Page) Close() error {
	if err := unix.Munmap(p.mem); err != nil {
		return os.NewSyscallError("munmap", err)
	}
	return p.File.Close()
}

// Slots returns the number of slots of the page. Each slot has the results of one thread.
func (p *Page) Slots() int { return (len(p.mem) - slotsAt) / slotBytes }

// Slot returns slot i, which has the results of one thread, and the counters of the thread's first histogram.
func (p *Page) Slot(i int) (*Slot, []uint64) {
	b := p.mem[slotsAt+i*slotBytes:][:slotBytes]
	// SAFETY: the length of a slot is a multiple of a page, so the Slot and the counters are aligned. The slice b is
	// long enough for both.
	return (*Slot)(unsafe.Pointer(&b[0])), unsafe.Slice((*uint64)(unsafe.Pointer(&b[slotHeadBytes])), stats.HistBuckets)
}

// Other returns the counters of the second histogram of the thread that reports in slot i.
func (p *Page) Other(i int) []uint64 {
	b := p.mem[slotsAt+i*slotBytes+slotHeadBytes+stats.HistBuckets*8:][:stats.HistBuckets*8]
	// SAFETY: as in Slot.
	return unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), stats.HistBuckets)
}

// WordAt returns the 32-bit word at a byte offset of mapped memory. Primitives of the host use it, because they keep
// their state in the mapped segment.
func WordAt(mem []byte, off int) *atomic.Uint32 {
	_ = mem[off : off+4]
	// SAFETY: bounds checked above; callers pass multiples of 4.
	return (*atomic.Uint32)(unsafe.Pointer(&mem[off]))
}

// FutexWord returns w as the pointer type that the futex functions take.
func FutexWord(w *atomic.Uint32) *uint32 {
	// SAFETY: atomic.Uint32 is a uint32 and two zero-sized markers.
	return (*uint32)(unsafe.Pointer(w))
}
