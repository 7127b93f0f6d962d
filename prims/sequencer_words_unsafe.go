package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// sequencerWords is the body of a Sequencer, 384 bytes. The counter has a cache line to itself. In an arena that counts
// operations, a [countWords] follows.
type sequencerWords struct {
	_ structs.HostLayout
	// value is the counter.
	//   writers: all participants, by atomic addition, CAS or store
	//   readers: all participants
	//   order:   seq-cst, against the cells
	//   futex:   none
	//   crash:   a process that counted may not have looked at the cell; see tokenCellState
	value atomic.Uint64
	_     [56]byte
	turns atomic.Uint64 // see sequencerTurns
	// lastCPU, spin and pays control how long waiters spin, as in mutexWords.
	lastCPU atomic.Uint32
	spin    atomic.Uint32
	pays    atomic.Uint32
	_       [44]byte
	cells   [sequencerCells]tokenCellWords
}

// sequencerCounted is the body of a Sequencer in an arena that counts operations.
type sequencerCounted struct {
	_      structs.HostLayout
	words  sequencerWords
	counts countWords
}

// tokenCellWords are the words of a cell of a Sequencer. Every 16th token belongs to the same cell.
type tokenCellWords struct {
	state  atomic.Uint64 // see tokenCellState
	poller atomic.Uint64 // head of the list of poller nodes; see arenakernel.EachPollerNode
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(sequencerWords{}.turns)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(sequencerWords{}.lastCPU)-72]
	_ = [1]struct{}{}[unsafe.Offsetof(sequencerWords{}.spin)-76]
	_ = [1]struct{}{}[unsafe.Offsetof(sequencerWords{}.pays)-80]
	_ = [1]struct{}{}[unsafe.Offsetof(sequencerWords{}.cells)-128]
	_ = [1]struct{}{}[unsafe.Sizeof(tokenCellWords{})-16]
	_ = [1]struct{}{}[unsafe.Sizeof(sequencerWords{})-384]
	_ = [1]struct{}{}[unsafe.Offsetof(sequencerCounted{}.counts)-384]
)

const (
	sequencerCellsOff = arenakernel.Offset(unsafe.Offsetof(sequencerWords{}.cells))
	sequencerSpinOff  = arenakernel.Offset(unsafe.Offsetof(sequencerWords{}.spin))
	tokenCellBytes    = arenakernel.Offset(unsafe.Sizeof(tokenCellWords{}))

	tokenCellPollerOff = arenakernel.Offset(unsafe.Offsetof(tokenCellWords{}.poller))
)

// sequencerBytes returns the size of the body of a Sequencer.
func sequencerBytes(a *arenakernel.Arena) uint64 {
	if a.Counted() {
		return uint64(unsafe.Sizeof(sequencerCounted{}))
	}
	return uint64(unsafe.Sizeof(sequencerWords{}))
}

// sequencerAll has the words of a Sequencer, and its counters, which are nil if the arena does not count operations.
type sequencerAll struct {
	*sequencerWords
	counts *countWords
}

// sequencerAt returns the words of o.
func sequencerAt(a *arenakernel.Arena, o arenakernel.Object) (sequencerAll, error) {
	if a.Counted() {
		w, err := arenakernel.TryAt[sequencerCounted](a, o.Body)
		if err != nil {
			return sequencerAll{}, err
		}
		return sequencerAll{&w.words, &w.counts}, nil
	}
	w, err := arenakernel.TryAt[sequencerWords](a, o.Body)
	return sequencerAll{w, nil}, err
}

// cell returns the words that cell i uses as an eventcount.
func (w sequencerAll) cell(i int) eventcountPlaces {
	c := &w.cells[i]
	return eventcountPlaces{
		&c.state, &c.poller, &w.lastCPU, &w.spin, &w.pays, w.counts, sequencerCellsOff + arenakernel.Offset(i)*tokenCellBytes,
	}
}

// next returns how far the smallest announced token is ahead of the counter, whose value is v, and whether any
// token is announced.
func (w *sequencerWords) next(v uint64) (ahead uint64, announced bool) {
	for i := range w.cells {
		s := tokenCellState(w.cells[i].state.Load())
		switch {
		case !s.announced():
			continue
		case s.due(v):
			ahead = 0
		case !announced || uint64(s.ahead(v)) < ahead:
			ahead = uint64(s.ahead(v))
		}
		announced = true
	}
	return ahead, announced
}

// sequencerBody returns the words of a Sequencer that is being created in b, and that no other process sees yet.
func sequencerBody(b []byte) *sequencerWords {
	_ = b[unsafe.Sizeof(sequencerWords{})-1]
	return (*sequencerWords)(unsafe.Pointer(unsafe.SliceData(b)))
}
