package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// begin tries once to end this phase, if the phase is broken, and to begin the next phase. parties is the number of
// parties of the next phase; 0 means the parties that are alive. begin reports whether it has begun a phase.
//
// begin does nothing while a dead participant is not gone. The kernel may still write to memory for such a
// participant, and could overwrite the data of the next phase. begin first loads c, the value of the commit word, and
// then checks for such participants. So the check covers every death that the state at c counts.
//
//	Reset                                      another Reset, of the same phase
//	state at c: the phase is broken            the same
//	record: load; is the commit word still c?  record: load, ...
//	CAS of the record                          CAS of the record
//	CAS of the commit word from c              CAS of the commit word
//
// begin writes the record of the broken phase before it ends that phase by the CAS of the commit word. A death
// between the load of c and this CAS changes the commit word, and the CAS fails. So if the CAS succeeds, the record
// agrees with the last state of the phase.
//
// Suppose that a process is stopped before its CAS of the record, and another process ends the phase. When the
// stopped process resumes, its CAS of the record fails, because the record has changed since the process loaded it.
func (x *Barrier) begin(parties uint64) (done bool, err error) {
	x.private.Lock()
	defer x.private.Unlock()
	c := x.load()
	s, ok, err := x.at(c)
	if err != nil || !ok || !s.isBroken() || !x.a.AllGone() {
		return false, err
	}
	record := &x.words.breaks[s.phase%barrierBreaks]
	if was := record.Load(); was != uint64(s.remembered()) {
		if x.load() != c || !record.CompareAndSwap(was, uint64(s.remembered())) {
			return false, nil
		}
	}
	crashpoint.Hit("barrier.reset.remembered")
	is := s
	is.begin(parties)
	var ch recordChange
	ch.differState(&s, &is)
	return x.commit(c, &ch)
}

// ownerDead returns the error of a wait for phase p, which was broken.
func (x *Barrier) ownerDead(op string, p uint64, v barrierVerdict) error {
	var why string
	switch {
	case v.dead == 0:
		return failed(x.a, x.object, op, shmsync.ErrOwnerDead, nil,
			fmt.Sprintf("nobody knows how phase %d ended: more than %d phases ago, and a later one broke", p, barrierBreaks))
	case x.a.Current(v.dead):
		why = "its completion panicked"
	default:
		why = "it was one of the parties and died"
	}
	switch {
	case v.lost == 1:
		why += "; 1 party was lost"
	default:
		why += fmt.Sprintf("; %d parties were lost", v.lost)
	}
	return failed(x.a, x.object, op, shmsync.ErrOwnerDead, x.a.Who(v.dead), why)
}
