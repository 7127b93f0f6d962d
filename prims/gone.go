package prims

import (
	"context"
	"errors"
	"time"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

// A dead process leaves two things in shared memory. The first is the words of an object, such as an owner word
// or the state of a queue. Other processes repair them as soon as they know of the death. The second is the
// data that the object guards. Other processes get the data only when the dead process is gone. Until then a
// system call of that process may still write to the data. See docs/design/0018.

const (
	// goneFirst and goneMost bound the pause between two checks whether a process that is marked dead is gone.
	// A process that is gone can store nothing any more.
	goneFirst = 50e3 // ns
	goneMost  = 5e6  // ns
)

// errClosing means that this process is leaving the arena.
var errClosing = errors.New("this process closes the arena")

// goneWait computes the pauses between the checks of one call.
type goneWait struct{ last int64 }

// next returns the next pause in nanoseconds. Each pause is a quarter longer than the last.
func (g *goneWait) next() int64 {
	g.last = min(max(g.last*5/4, goneFirst), goneMost)
	return g.last
}

// awaitGone waits until the dead participant n is gone, or until the function in the parameter names returns
// false. That function reports whether the word that the caller has read still names n. If the word has another
// value, n may be the ID of another participant by now, and the caller must not wait for that participant. So
// the caller reads the word again after awaitGone. q is a queue of the object. The errors are ctx.Err() and
// errClosing.
func awaitGone(ctx context.Context, a *arenakernel.Arena, q *park.Queue, n arenakernel.ParticipantID, names func() bool) error {
	was := a.Current(n) // a peer may have written the ID of a living participant into the word
	// If an ID that was not current becomes current, another participant has got it.
	return awaitUntil(ctx, q, func() bool { return !names() || a.Gone(n) || !was && a.Current(n) })
}

// awaitAllGone waits until all dead participants are gone.
func awaitAllGone(a *arenakernel.Arena, q *park.Queue) error {
	return awaitUntil(nil, q, a.AllGone)
}

func awaitUntil(ctx context.Context, q *park.Queue, done func() bool) error {
	if done() {
		return nil
	}
	if !q.Enter() {
		return errClosing
	}
	defer q.Exit()
	var ended <-chan struct{}
	if ctx != nil {
		ended = ctx.Done()
	}
	var g goneWait
	timer := time.NewTimer(time.Duration(g.next()))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ended:
			return ctx.Err()
		}
		switch {
		case done():
			return nil
		case q.Closing():
			return errClosing
		}
		timer.Reset(time.Duration(g.next()))
	}
}
