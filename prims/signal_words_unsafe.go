package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

// signalHead is the first 768 bytes of the body of a SignalWaker. The signals, the gates and a row of counts for
// each slot of the arena follow.
//
// Words that different CPUs write are 128 bytes apart: a cache line, and the neighbour line that the CPU
// prefetches along with it.
type signalHead struct {
	_ structs.HostLayout
	// config has the number of signals in bits 0..7, where 0 stands for 64. Bit 8 is set if the operations update the
	// counters in signalRow.stats. Immutable after init.
	config uint32
	rows   uint32 // the number of rows. Immutable after init.
	_      [120]byte

	// summary has a bit for each signal that may have a bit set; see MarkActive.
	//   writers: MarkActive (sets), TryUnmarkIfEmpty and TryUnmark (clear), reaps (set), any process
	//   readers: Next, SnapshotSummary, SummarySelect
	//   order:   seq-cst, against the signals
	//   futex:   none
	//   crash:   a superfluous bit costs a scan; the reap
	//            sets a missing bit
	summary atomic.Uint64
	_       [120]byte

	// permits is the number of permits.
	//   writers: Release, each 0 -> 1 of a bit of summary or status, reaps (add); Acquire
	//            (takes one by CAS)
	//   readers: the same, Permits
	//   order:   acq-rel; seq-cst against wake
	//   futex:   none; waiters sleep on wake
	//   crash:   the reap replaces permits that the dead process had taken, or had not issued yet
	permits atomic.Uint64
	_       [120]byte

	// wake is the futex word of the waiters for a permit; see park.Word.
	wake    atomic.Uint32
	lastCPU atomic.Uint32 // a cpuNote of package park: the CPUs that issued permits last; a hint
	pays    atomic.Uint32 // a payWord of package park: how well spinning has paid lately; a hint
	spin    atomic.Uint32 // spin budget: 0 adaptive, else ns + 1; set by users
	poller  atomic.Uint64 // head of the list of poller nodes; see arenakernel.EachPollerNode
	_       [104]byte

	status atomic.Uint64 // see signalStatus
	_      [120]byte

	// partition is the partition summary. It has a bit for each signal of a worker's partition that may have work;
	// see SyncPartitionSummary.
	//   writers: SyncPartitionSummary, MarkPartitionLeafActive, ClearPartitionLeaf
	//   readers: the same, TryUnmarkTasks
	//   order:   seq-cst, against the leaves and against status
	//   futex:   none
	//   crash:   a superfluous bit costs a scan; the next sync sets a missing one: each death
	//            wakes a sleeper, which then syncs
	partition atomic.Uint64
	_         [120]byte
}

// signalLine is one signal: 64 queues.
type signalLine struct {
	_ structs.HostLayout
	// bits has a bit for each queue whose gate may be scheduled.
	//   writers: Schedule, Finish, reaps (set); Acquire, Begin, Next (clear), any process
	//   readers: Next, TryUnmarkIfEmpty, and everybody
	//   order:   seq-cst, against summary and the gates
	//   futex:   none
	//   crash:   an index of the gates: a superfluous bit costs one check, the reap sets a missing bit
	bits atomic.Uint64
	_    [56]byte
	// tasks has a bit for each queue that may be reserved for a task.
	//   writers: ReserveTask (sets), ReleaseTask and reaps (clear)
	//   readers: ReserveTask
	//   order:   relaxed is enough, because the ID of the owner in the gate decides
	//   futex:   none
	//   crash:   an index of the owners; the reap clears a superfluous bit
	tasks atomic.Uint64
	_     [56]byte
}

// signalGate is the gate of one queue.
type signalGate struct {
	_    structs.HostLayout
	word atomic.Uint64 // see signalGateWord
	// task is the ID of the participant that has reserved the queue, or 0.
	//   writers: ReserveTask (CAS 0 to its name); ReleaseTask, reapers (CAS to 0)
	//   readers: the same
	//   order:   acq-rel
	//   futex:   none
	//   crash:   a reservation of the dead becomes free
	task atomic.Uint32
	_    [116]byte
}

// signalRow has the counts of the participant in one slot.
type signalRow struct {
	_     structs.HostLayout
	count atomic.Uint64 // see signalCount
	_     [120]byte
	// stats are counters. The next participant in the slot continues them.
	//   writers: the participant of the slot
	//   readers: Stats, of any process
	//   order:   relaxed
	//   futex:   none
	//   crash:   any value is right
	stats [signalStats]atomic.Uint64
	_     [2]uint64
}

// The layout is part of the binary interface: if the offset of a field changes, its line here does not compile.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(signalHead{}.config)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(signalHead{}.rows)-4]
	_ = [1]struct{}{}[unsafe.Offsetof(signalHead{}.summary)-128]
	_ = [1]struct{}{}[unsafe.Offsetof(signalHead{}.permits)-256]
	_ = [1]struct{}{}[unsafe.Offsetof(signalHead{}.wake)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(signalHead{}.lastCPU)-388]
	_ = [1]struct{}{}[unsafe.Offsetof(signalHead{}.pays)-392]
	_ = [1]struct{}{}[unsafe.Offsetof(signalHead{}.spin)-396]
	_ = [1]struct{}{}[unsafe.Offsetof(signalHead{}.poller)-400]
	_ = [1]struct{}{}[unsafe.Offsetof(signalHead{}.status)-512]
	_ = [1]struct{}{}[unsafe.Offsetof(signalHead{}.partition)-640]
	_ = [1]struct{}{}[unsafe.Sizeof(signalHead{})-768]

	_ = [1]struct{}{}[unsafe.Offsetof(signalLine{}.bits)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(signalLine{}.tasks)-64]
	_ = [1]struct{}{}[unsafe.Sizeof(signalLine{})-128]

	_ = [1]struct{}{}[unsafe.Offsetof(signalGate{}.word)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(signalGate{}.task)-8]
	_ = [1]struct{}{}[unsafe.Sizeof(signalGate{})-128]

	_ = [1]struct{}{}[unsafe.Offsetof(signalRow{}.count)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(signalRow{}.stats)-128]
	_ = [1]struct{}{}[unsafe.Sizeof(signalRow{})-256]
)

const (
	signalHeadBytes = uint64(unsafe.Sizeof(signalHead{}))
	signalLineBytes = uint64(unsafe.Sizeof(signalLine{}))
	signalGateBytes = uint64(unsafe.Sizeof(signalGate{}))
	signalRowBytes  = uint64(unsafe.Sizeof(signalRow{}))
	signalWakeOff   = arenakernel.Offset(unsafe.Offsetof(signalHead{}.wake))
)

// signalBytes returns the size of the body of a SignalWaker.
func signalBytes(signals, rows int) uint64 {
	return signalHeadBytes + uint64(signals)*(signalLineBytes+signalBits*signalGateBytes) + uint64(rows)*signalRowBytes
}

// signalBody returns the head of a SignalWaker that is being created in b, and that no other process sees yet.
func signalBody(b []byte) *signalHead {
	_ = b[signalHeadBytes-1]
	return (*signalHead)(unsafe.Pointer(unsafe.SliceData(b)))
}

// signalView has pointers to the words of a SignalWaker in this process's memory.
type signalView struct {
	a      *arenakernel.Arena
	object arenakernel.Object
	head   *signalHead
	lines  []signalLine
	gates  []signalGate
	rows   []signalRow // the row of slot i is at index i-1
	mask   uint64      // the bits of summary that stand for a signal

	opening *opening
	queue   *park.Queue // nil for a reaper or a tool, which cannot wait
}

// viewSignals returns pointers to the words of an object. It validates the head first, because a peer may have
// overwritten the sizes there.
func viewSignals(a *arenakernel.Arena, o arenakernel.Object) (v signalView, err error) {
	head, err := arenakernel.TryAt[signalHead](a, o.Body)
	if err != nil {
		return v, err
	}
	signals, rows := signalsOf(head.config), int(head.rows)
	if signals > signalBits || rows != a.MaxParticipants() || o.Size < signalBytes(signals, rows) {
		return v, &shmsync.Error{Op: "signalwaker.open", Object: objectName(o), Err: shmsync.ErrCorrupt,
			Detail: "its head says what its size does not allow"}
	}
	// SAFETY: the body has o.Size bytes, which the arena has checked against the block that
	// contains it, and the parts below need no more than that. The structs have no pointers, and
	// their sizes are multiples of their alignment.
	at := unsafe.Pointer(head)
	v = signalView{a: a, object: o, opening: newOpening(a, o), head: head, mask: ^uint64(0) >> (signalBits - signals)}
	at = unsafe.Add(at, signalHeadBytes)
	v.lines = unsafe.Slice((*signalLine)(at), signals)
	at = unsafe.Add(at, uint64(signals)*signalLineBytes)
	v.gates = unsafe.Slice((*signalGate)(at), signals*signalBits)
	at = unsafe.Add(at, uint64(signals)*signalBits*signalGateBytes)
	v.rows = unsafe.Slice((*signalRow)(at), rows)
	return v, nil
}
