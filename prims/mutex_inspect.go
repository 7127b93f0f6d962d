package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

func inspectMutex(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	w, err := arenakernel.TryAt[mutexWords](a, o.Body)
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	i.Policy, i.Spin = policyOf(w.policy).String(), spinText(w.spin.Load())
	word := ownerWord(w.owner.Load())
	i.State = word.String()
	i.Counts = countsOf(a, &w.counts).tell()
	on := i.owner(word, arenakernel.ParticipantID(w.died.Load()&arenakernel.ParticipantIDMask))
	i.dateMutex(on, a, w)
	i.mutexRest(w)
	switch l, err := mutexLog(a, o, w); {
	case err != nil:
		i.lost(err, 0) // every process that opens the object would find the damage and fail
	case l != nil:
		i.undoLog(l)
	}
	i.waits(waitsOn(mutexWakeOff, mutexPollerOff), "lock", on)
	return i.Inspection
}

// mutexRest adds all words of a mutex except the owner word, which the caller has added already.
func (i *inspection) mutexRest(w *mutexWords) {
	i.wakeWord("wake", w.wake.Load())
	if s := w.starving.Load(); s != 0 {
		i.word("starving", uint64(s), "%v asks for the next release", arenakernel.ParticipantID(s&arenakernel.ParticipantIDMask))
	}
}

// undoLog adds the undo log of a lock.
func (i *inspection) undoLog(l *undoLog) {
	s := l.state()
	i.word("undo log", uint64(s), "%v; %d bytes in all, at most %d were in use; %d rollbacks", s, l.size, l.head.highest.Load(), l.head.rollbacks.Load())
}
