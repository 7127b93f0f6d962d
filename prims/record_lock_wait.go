package prims

import (
	"context"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

// awaitTurn waits until the wait of the node s has ended. s is in the queue, and also on a line, that is, a list of the
// waits of this process for the lock in the order of arrival. If the lock was granted to the wait, the next wait on the
// line gets its turn when the hold ends. If awaitTurn returns an error, the wait was given up.
func (l *recordLock) awaitTurn(ctx context.Context, s *park.WaitNode) error {
	l.queue.StartPoller() // the poller checks the queue after each death
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

// outcome is called when a wait is over and its node s is off the line of this process. It gives the node back. It
// returns nil if the wait was granted the lock whose words are w, and otherwise the reason why it was not.
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

// refusedBy returns the error of a wait that was refused. why is the reason that refuse has stored.
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
