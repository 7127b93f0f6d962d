package prims

import (
	"context"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

// awaitTurn waits until the wait of the node s has ended. The wait is in the queue of the lock. It is also on a line,
// that is, the list of the waits of this process for this lock. If the lock was granted to the wait, the next wait on
// the line gets its turn when the hold ends. An error means that the wait was given up.
func (l *recordLock) awaitTurn(ctx context.Context, s *park.WaitNode) error {
	wanted := s.Node.Wanted().Load()
	c := park.CancelBy(ctx)
	r, awake := s.SleepInTurn(l.queue, l.tuning, &c)
	c.Stop()
	if awake {
		l.counts.add(countSpin)
	} else {
		l.counts.add(countSleep)
	}
	switch r {
	case park.Canceled:
		crashpoint.Hit("record.await.withdrawn")
		return c.Err()
	case park.Closed:
		crashpoint.Hit("record.await.withdrawn")
		return l.hooks.closedError()
	case park.Torn:
		return l.hooks.lockError(wanted, shmsync.ErrCorrupt, 0, tornQueue)
	}
	s.LeaveLine(valueIn(s.Node.Next()) == arenakernel.RecordedGranted)
	return nil
}

// outcome returns nil if the wait of the node s was granted the lock, and otherwise the reason why it was not. The wait
// is over, and off the line of this process. outcome gives the node back. The parameter w has the words of the lock.
func (l *recordLock) outcome(s *park.WaitNode, w lockWords, wanted uint64) error {
	for tries := 0; ; tries++ {
		switch next, why := valueIn(s.Node.Next()), ownerWord(valueIn(s.Node.Extra())); {
		case next == arenakernel.RecordedRefused:
			crashpoint.Hit("record.await.resolved")
			l.handBack(s)
			return l.refusedBy(why, w, wanted)
		case l.collect(s):
			return nil
		case tries > 0 || l.withdraw(s):
			if tries > 0 { // the method withdraw has not given the node up
				s.Forget()
			}
			return l.hooks.lockError(wanted, shmsync.ErrCorrupt, 0, "a wait node, which ended a wait that was not granted")
		}
	}
}

// refusedBy returns the error of a wait that was refused. The parameter why is the state of the lock that refuse has
// stored in the wait node.
func (l *recordLock) refusedBy(why ownerWord, w lockWords, wanted uint64) error {
	died := why.participant()
	switch {
	case why.kind() == kindNotRecoverable && died != 0:
		return l.hooks.lockError(wanted, shmsync.ErrNotRecoverable, died, "")
	case why.free(): // the process that refused the wait has stored no reason
		why = w.state()
		died = l.hooks.died(why)
	}
	if err := l.refusal(wanted, why); err != nil {
		return err
	}
	// Another process is recovering the lock, or has recovered it.
	return l.hooks.lockError(wanted, shmsync.ErrOwnerDead, died, "")
}
