package prims

import (
	"fmt"
	"slices"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func inspectRWMutex(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	w, err := rwmutexAt(a, o)
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	i.Policy, i.Spin = policyOf(w.policy).String(), spinText(w.writers.spin.Load())
	i.Counts = countsOf(a, &w.writers.counts).tell()
	g := gateWord(w.gate.Load())
	i.State = g.String()
	i.word("gate", uint64(g), "%v", g)
	var gate, readers []int
	words := readReaderWords(a, o)
	switch {
	case !g.valid(), words.err != nil:
		i.lost(shmsync.ErrCorrupt, 0)
	case g == gateNotRecoverable:
		i.lost(shmsync.ErrNotRecoverable, arenakernel.ParticipantID(w.died.Load()&arenakernel.ParticipantIDMask))
	case g.kind() == gateOwnerDead:
		i.lost(shmsync.ErrOwnerDead, g.participant())
	case g.taken():
		mode := arenakernel.HoldExclusive
		switch g.kind() {
		case gateClosed:
			mode = arenakernel.HoldClosing
		case gateRecovering:
			mode = arenakernel.HoldRecovering
		}
		gate = i.hold(arenakernel.Hold{Owner: g.participant(), Mode: mode})
		if g.participant() == ownerWord(w.writers.owner.Load()).participant() {
			i.dateMutex(gate, a, w.writers) // the date is the time when the writer got the writers' mutex
		}
	}
	count, waiting := uint64(0), uint64(0)
	slices.SortFunc(words.words, func(x, y slotReaderWord) int { return x.slot - y.slot })
	for _, word := range words.words {
		r := word.load()
		n := word.name(r)
		if r == r.cleared() || !a.Current(n) {
			continue
		}
		i.word(fmt.Sprintf("readers of slot %d", word.slot), uint64(r), "%v: %v", n, r)
		waiting += uint64(r.waiting())
		if r.reading() > 0 {
			count += uint64(r.reading())
			readers = append(readers, i.hold(arenakernel.Hold{Owner: n, Mode: arenakernel.HoldShared, Count: uint64(r.reading())})...)
		}
	}
	if count > 0 {
		i.State += fmt.Sprintf(", %d reading", count)
	}
	if waiting > 0 {
		i.State += fmt.Sprintf(", %d waiting to read", waiting)
	}
	writers := gate
	if q := ownerWord(w.writers.owner.Load()); !q.free() {
		i.word("writers", uint64(q), "%v", q)
		if h := ownerHold(q); h.Owner != 0 && (!g.taken() || g.participant() != h.Owner) {
			switch {
			case h.Mode != arenakernel.HoldExclusive:
				h.Note = "the writers' turn"
			case g == gateOpen:
				// A writer that is about to close the gate, or has just opened it, looks like an upgradable holder
				// for a moment.
				h.Mode, h.Note = arenakernel.HoldUpgradable, ""
			default:
				h.Mode, h.Note = arenakernel.HoldClosing, "the writers' turn"
			}
			writers = i.hold(h)
			if h.Mode == arenakernel.HoldUpgradable {
				i.dateMutex(writers, a, w.writers)
				i.State += fmt.Sprintf(", held upgradable by %v", h.Owner)
			}
		}
	}
	if g.valid() && g.kind() == gateClosed {
		i.dateReaders(append(slices.Clip(readers), gate...), waitsOn(rwmutexWriterOff, rwmutexWriterPoller), g.participant())
	}
	i.waits(waitsOn(rwmutexReadersOff, rwmutexReadersPoller), "read", gate)
	i.waits(waitsOn(rwmutexWriterOff, rwmutexWriterPoller), "readers to leave", readers)
	i.waits(waitsOn(mutexWakeOff, mutexPollerOff), "lock", writers) // the waits to write, or for the upgradable hold
	return i.Inspection
}

// dateReaders adds a date to the hold of the participant n, which has closed the gate and waits for readers to leave.
// It adds the same date to the holds of these readers. The date is the time when n began to wait. A reader may have had
// its hold for longer. The parameter named at selects the waits for readers to leave; only n has such a wait.
//
// The caller must have read the holds before dateReaders reads the waits. In the other order, a new hold could get the
// date of a wait that was over before the hold began.
func (i *inspection) dateReaders(holds []int, at func(*arenakernel.Wait) bool, n arenakernel.ParticipantID) {
	waits := i.a.WaitsOf(i.o)
	for k := range waits {
		w := &waits[k]
		if !at(w) || w.Owner != n || w.Since == 0 || w.Count == 0 {
			continue
		}
		for _, h := range holds {
			if x := &i.Holds[h]; x.Since == 0 {
				x.Since, x.AtLeast = w.Since, true
			}
		}
	}
}
