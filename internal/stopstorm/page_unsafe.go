//go:build linux

package stopstorm

import (
	"errors"
	"fmt"
	"os"
	"structs"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/bench/control"
)

const (
	pageMagic  = 0x316d726f7473706f // "opstorm1"
	mostProcs  = 16
	mostLanes  = 8
	pageTexts  = 8
	phaseBegin = 0
	phaseRun   = 1
	phaseEnd   = 2
)

// The values of lanePage.at, which say where in its operation a lane is. A lane is a goroutine or thread that repeats
// one operation.
const (
	atOutside   = iota // between two operations
	atAcquiring        // in the call that acquires
	atHolding          // the call that acquires has returned
	atReleasing        // in the call that releases
)

// page is the memory that the parent and the workers share in addition to the arena.
type page struct {
	_     structs.HostLayout
	magic uint64
	prim  uint32 // index in prims
	procs uint32
	// phase tells the workers what to do: begin, run or end.
	//   writers: the parent
	//   readers: workers
	//   order:   acq_rel
	//   futex:   none
	//   crash:   of no importance
	phase atomic.Uint32
	// faults is the number of texts about faults that workers have begun to write. It may exceed pageTexts.
	//   writers: workers
	//   readers: the parent
	//   order:   acq_rel
	//   futex:   none
	//   crash:   a text may be missing
	faults atomic.Uint32
	text   [pageTexts]struct {
		n     atomic.Uint32
		bytes [1020]byte
	}
	// round is the number of the current object, for a workload that needs a new object each time.
	//   writers: workers
	//   readers: the same
	//   order:   acq_rel
	//   futex:   none
	//   crash:   of no importance
	round atomic.Uint64
	// secret is a lock that the arena does not show. The workload test:frozen uses it.
	//   writers: workers
	//   readers: the same
	//   order:   acq_rel
	//   futex:   none
	//   crash:   of no importance
	secret atomic.Uint32
	_      [4]byte
	proc   [mostProcs]procPage
}

// procPage has what one worker reports, and the words by which the parent steps the worker.
type procPage struct {
	// ready becomes 1 when the worker has opened its objects.
	//   writers: the worker
	//   readers: the parent
	//   order:   acq_rel
	//   futex:   none
	//   crash:   of no importance
	ready atomic.Uint32
	// self is the worker's ParticipantID.
	//   writers: the worker, before ready
	//   readers: the parent
	//   order:   relaxed; ready carries the edge
	//   futex:   none
	//   crash:   of no importance
	self atomic.Uint32
	// step is 0 if the worker runs all its operations. Otherwise the worker runs only the one with the index step-1, on
	// a thread that is stepped.
	//   writers: the parent, before it starts the worker
	//   readers: the worker
	//   order:   relaxed; the start carries the edge
	//   futex:   none
	//   crash:   of no importance
	step atomic.Uint32
	// tid is the ID of the thread that is stepped.
	//   writers: the worker, before ready
	//   readers: the parent
	//   order:   relaxed; ready carries the edge
	//   futex:   none
	//   crash:   of no importance
	tid atomic.Uint32
	// gate is the word on which the stepped thread spins before each operation: operation n begins when gate is n.
	// began and ended are the numbers of the last operations that have begun and ended.
	//   writers: the parent (gate), the worker
	//   readers: the other one
	//   order:   acq_rel
	//   futex:   none
	//   crash:   of no importance
	gate, began, ended atomic.Uint32
	_                  [4]byte
	// beat counts the heartbeats: it grows by at most one in each millisecond, and only while the worker has CPU time.
	//   writers: the worker
	//   readers: the parent
	//   order:   relaxed
	//   futex:   none
	//   crash:   of no importance
	beat atomic.Uint64
	_    [24]byte
	lane [mostLanes]lanePage
}

// lanePage has what one lane reports. A lane is a goroutine or thread that repeats one operation.
type lanePage struct {
	// ops is the number of operations that have returned.
	//   writers: the lane
	//   readers: the parent
	//   order:   relaxed
	//   futex:   none
	//   crash:   of no importance
	ops atomic.Uint64
	// at says where in its operation the lane is.
	//   writers: the lane
	//   readers: the parent
	//   order:   relaxed
	//   futex:   none
	//   crash:   of no importance
	at atomic.Uint32
	// tid is the ID of the thread that repeats the operation, if the worker is a program in C. It is 0 in Go, where the
	// operation has no thread of its own.
	//   writers: the lane, before its first operation
	//   readers: the parent
	//   order:   relaxed
	//   futex:   none
	//   crash:   of no importance
	tid atomic.Uint32
	_   [48]byte
}

// fault records a text about something that should not have happened.
func (p *page) fault(format string, args ...any) {
	i := p.faults.Add(1) - 1
	if i >= pageTexts {
		return
	}
	t := &p.text[i]
	t.n.Store(uint32(copy(t.bytes[:], fmt.Sprintf(format, args...))))
}

// failures returns the texts of the faults. It omits a text that is being written; the next call returns that text. If
// the worker ends before it has written the text, the parent finds out that the worker has ended.
func (p *page) failures() (texts []string) {
	for i := range min(p.faults.Load(), pageTexts) {
		t := &p.text[i]
		if n := t.n.Load(); n != 0 {
			texts = append(texts, string(t.bytes[:min(n, uint32(len(t.bytes)))]))
		}
	}
	return texts
}

func newPage() (*page, *os.File, error) {
	f, err := control.NewMemfd("shmbench-stopstorm", int64(unsafe.Sizeof(page{})))
	if err != nil {
		return nil, nil, err
	}
	p, err := mapPage(f)
	return p, f, err
}

func mapPage(f *os.File) (*page, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if uintptr(st.Size()) < unsafe.Sizeof(page{}) {
		return nil, errors.New("the descriptor is no page of a stop storm")
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(unsafe.Sizeof(page{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	// SAFETY: mappings are page-aligned, and the file is long enough.
	return (*page)(unsafe.Pointer(&mem[0])), nil
}

// pageFlags returns compiler flags that define, for worker.c, the places of the words on the page and the meaning of
// their values.
func pageFlags() (flags []string) {
	var p page
	var w procPage
	var l lanePage
	for _, f := range []struct {
		name string
		is   uintptr
	}{
		{"BYTES", unsafe.Sizeof(p)}, {"TEXTS", pageTexts}, {"FAULTS", unsafe.Offsetof(p.faults)}, {"TEXT", unsafe.Offsetof(p.text)},
		{"PHASE", unsafe.Offsetof(p.phase)}, {"PHASE_BEGIN", phaseBegin}, {"PHASE_RUN", phaseRun},
		{"ROUND", unsafe.Offsetof(p.round)}, {"SECRET", unsafe.Offsetof(p.secret)},
		{"PROC", unsafe.Offsetof(p.proc)}, {"PROC_SIZE", unsafe.Sizeof(w)}, {"READY", unsafe.Offsetof(w.ready)},
		{"SELF", unsafe.Offsetof(w.self)}, {"STEP", unsafe.Offsetof(w.step)}, {"TID", unsafe.Offsetof(w.tid)},
		{"GATE", unsafe.Offsetof(w.gate)}, {"BEGAN", unsafe.Offsetof(w.began)}, {"ENDED", unsafe.Offsetof(w.ended)},
		{"BEAT", unsafe.Offsetof(w.beat)}, {"LANES", mostLanes}, {"LANE", unsafe.Offsetof(w.lane)}, {"LANE_SIZE", unsafe.Sizeof(l)},
		{"LANE_OPS", unsafe.Offsetof(l.ops)}, {"LANE_AT", unsafe.Offsetof(l.at)}, {"LANE_TID", unsafe.Offsetof(l.tid)}, {"GIVE_UP", uintptr(giveUp)},
		{"AT_OUTSIDE", atOutside}, {"AT_ACQUIRING", atAcquiring}, {"AT_HOLDING", atHolding}, {"AT_RELEASING", atReleasing},
	} {
		flags = append(flags, fmt.Sprintf("-DPAGE_%s=%d", f.name, f.is))
	}
	return flags
}

func (p *page) unmap() {
	// SAFETY: the mapping is that of mapPage.
	unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(page{})))
}
