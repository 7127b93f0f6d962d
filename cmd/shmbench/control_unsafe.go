//go:build linux

package main

import (
	"fmt"
	"os"
	"structs"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The control page is how the parent and its workers, in Go and in C, speak.
// peer.h declares the same bytes; both sides assert the offsets at compile
// time.
const (
	controlMagic   = 0x3168636e65626d73 // "smbench1"
	controlBytes   = 4096
	slotHeadBytes  = 4096
	slotBytes      = slotHeadBytes + 2*histBuckets*8
	slotsAt        = controlBytes + scratchBytes
	primBytes      = 32
	messageBytes   = 256
	slotMetrics    = 8
	slotFrom       = 64
	controlFD      = 3
	segmentFD      = 4
	firstSubjectFD = 5
	segmentBytes   = 64 << 20 // sparse; what the subject under test lives in
	peerBytes      = 1 << 20  // the part of the segment that peers map
)

// Phases of a cell, in the order in which the parent stores them.
const (
	phaseWarmup = iota
	phaseMeasure
	phaseStop
)

// States of a slot.
const (
	slotEmpty = iota
	slotReady
	slotDone
	slotFailed
)

// control is the head of the control page. The plan is immutable once the
// first worker has started; each word that somebody spins or sleeps on has a
// cache line of its own.
type control struct {
	_        structs.HostLayout
	magic    uint64
	scenario uint32
	procs    uint32
	threads  uint32 // per process
	huge     uint32 // shm.HugePages of a mem cell
	csNs     uint64
	thinkNs  uint64
	gapNs    uint64
	seed     uint64
	n        uint64 // waiters of a waiters cell
	batch    uint64 // pairs per sample of an uncontended cell
	_        [24]byte
	prim     [primBytes]byte

	setup   atomic.Uint32 // 1 once process 0 has initialised the subject
	_       [60]byte
	ready   atomic.Uint32 // threads that wait for the start instant
	_       [60]byte
	started atomic.Uint32 // futex: 1 once startNs is valid
	_       [4]byte
	startNs atomic.Int64 // absolute CLOCK_MONOTONIC
	_       [48]byte
	phase   atomic.Uint32
	_       [60]byte

	// The rounds of a crash cell. Each word counts rounds and is a futex.
	victimGo   atomic.Uint32 // parent: victim of this round may lock
	held       atomic.Uint32 // victim: it holds
	survivorGo atomic.Uint32 // parent: survivor may queue up
	trying     atomic.Uint32 // survivor: about to block
	owned      atomic.Uint32 // survivor: it owned, and has released
	_          [4]byte
	killedNs   atomic.Int64  // parent: instant just before kill(2); 0 while the victim lives
	secondGo   atomic.Uint32 // parent: the second of the survivor's goroutines may queue up
	queued     atomic.Uint32 // survivor: it is about to block
	killedGo   atomic.Uint32 // parent: the victim was killed
	_          [20]byte

	stampNs atomic.Int64 // wake cells: instant just before the pass
	_       [56]byte

	counter uint64 // guarded by the lock under test; plain on purpose
	holder  uint64 // likewise: the slot that held it last, and 1
	_       [48]byte

	think [thinks]float32 // think times, in units of their mean
	shape shape
}

// slot is what one worker thread reports. Its two histograms follow it.
type slot struct {
	_          structs.HostLayout
	pid        uint32
	tid        uint32
	cpu        int32 // asked for; -1 where unpinned
	state      atomic.Uint32
	total      uint64 // operations, warm-up included
	ops        uint64 // operations measured
	startNs    int64
	endNs      int64
	violations uint64
	nvcsw      uint64
	nivcsw     uint64
	userNs     uint64
	sysNs      uint64
	itersPerNs float64 // calibration of the work loop
	metrics    [slotMetrics]float64
	message    [messageBytes]byte
	from       [slotFrom]uint64 // how often the lock came from each slot
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(control{}.prim)-96]
	_ = [1]struct{}{}[unsafe.Offsetof(control{}.setup)-128]
	_ = [1]struct{}{}[unsafe.Offsetof(control{}.ready)-192]
	_ = [1]struct{}{}[unsafe.Offsetof(control{}.started)-256]
	_ = [1]struct{}{}[unsafe.Offsetof(control{}.startNs)-264]
	_ = [1]struct{}{}[unsafe.Offsetof(control{}.phase)-320]
	_ = [1]struct{}{}[unsafe.Offsetof(control{}.victimGo)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(control{}.killedNs)-408]
	_ = [1]struct{}{}[unsafe.Offsetof(control{}.stampNs)-448]
	_ = [1]struct{}{}[unsafe.Offsetof(control{}.counter)-512]
	_ = [1]struct{}{}[unsafe.Offsetof(control{}.think)-576]
	_ = [1]struct{}{}[unsafe.Offsetof(slot{}.total)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(slot{}.itersPerNs)-88]
	_ = [1]struct{}{}[unsafe.Offsetof(slot{}.metrics)-96]
	_ = [1]struct{}{}[unsafe.Offsetof(slot{}.message)-160]
	_ = [1]struct{}{}[unsafe.Offsetof(slot{}.from)-416]
	_ = [1]struct{}{}[unsafe.Sizeof(slot{})-928]
)

// page is a mapped control page and its slots.
type page struct {
	*control
	file *os.File
	mem  []byte
}

// newPage makes a zeroed control page with room for the given threads.
func newPage(slots int) (*page, error) {
	f, err := newMemfd("shmbench-control", slotsAt+int64(slots)*slotBytes)
	if err != nil {
		return nil, err
	}
	return mapPage(f)
}

// mapPage maps the control page behind f and owns f from then on.
func mapPage(f *os.File) (*page, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	// SAFETY: mappings are page-aligned and the file is at least a page long.
	return &page{control: (*control)(unsafe.Pointer(&mem[0])), file: f, mem: mem}, nil
}

func (p *page) close() error {
	if err := unix.Munmap(p.mem); err != nil {
		return os.NewSyscallError("munmap", err)
	}
	return p.file.Close()
}

func (p *page) slots() int { return (len(p.mem) - slotsAt) / slotBytes }

// slot gives slot i and the counters of its main histogram.
func (p *page) slot(i int) (*slot, []uint64) {
	b := p.mem[slotsAt+i*slotBytes:][:slotBytes]
	// SAFETY: slots are multiples of a page long, so both are aligned, and the
	// slice above is long enough for both.
	return (*slot)(unsafe.Pointer(&b[0])), unsafe.Slice((*uint64)(unsafe.Pointer(&b[slotHeadBytes])), histBuckets)
}

// other gives the counters of the second histogram of slot i.
func (p *page) other(i int) []uint64 {
	b := p.mem[slotsAt+i*slotBytes+slotHeadBytes+histBuckets*8:][:histBuckets*8]
	// SAFETY: as in slot.
	return unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), histBuckets)
}

// newMemfd makes a memfd of the given size, closed on exec until it is handed
// to a worker.
func newMemfd(name string, size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Truncate(size); err != nil {
		f.Close()
		return nil, fmt.Errorf("size of %s: %w", name, err)
	}
	return f, nil
}

// wordAt gives the 32-bit word at a byte offset of mapped memory, for the
// peers that keep their state in the segment.
func wordAt(mem []byte, off int) *atomic.Uint32 {
	_ = mem[off : off+4]
	// SAFETY: bounds checked above; callers pass offsets that divide by 4.
	return (*atomic.Uint32)(unsafe.Pointer(&mem[off]))
}

// futexWord is w as the futex functions take it.
func futexWord(w *atomic.Uint32) *uint32 {
	// SAFETY: atomic.Uint32 is a uint32 and two zero-sized markers.
	return (*uint32)(unsafe.Pointer(w))
}
