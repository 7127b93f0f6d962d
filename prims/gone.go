package prims

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
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

// goneWait computes the pauses that one call of awaitUntil makes between its checks.
type goneWait struct{ last int64 }

// next returns the next pause in nanoseconds. Each pause is a quarter longer than the last.
func (g *goneWait) next() int64 {
	g.last = min(max(g.last*5/4, goneFirst), goneMost)
	return g.last
}

// awaitGone waits until the dead participant n is gone, or until the word that the caller has read no longer names n.
// The parameter names is a function that reports whether the word still names n. After awaitGone, the caller reads the
// word again. q is a queue of the object. The errors are ctx.Err() and errClosing.
//
// If the word no longer names n, another participant may have got the ID n. Then awaitGone returns, because it must not
// wait for that participant.
func awaitGone(ctx context.Context, a *arenakernel.Arena, q *park.Queue, n arenakernel.ParticipantID, names func() bool) error {
	was := a.Current(n) // true if a peer has written the ID of a living participant into the word
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
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if pause := g.next(); pause >= napMost || !nap(pause) {
			timer.Reset(time.Duration(pause))
			select {
			case <-timer.C:
			case <-ended: // done may have become true meanwhile
			}
		}
		switch {
		case done():
			return nil
		case q.Closing():
			return errClosing
		case ctx != nil && ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

const (
	napMost    = 1e6 // ns; a pause of this length or more uses a timer instead of nap
	nappersMax = park.DirectMax
)

var (
	nappers atomic.Int32 // how many goroutines are in a nap
	napWord uint32       // always 0; nap sleeps on this word, and nobody wakes it
)

// nap sleeps in the kernel for the given number of nanoseconds. It returns false, and does not sleep, if too many
// goroutines of this process sleep in nap already. A timer of the Go runtime would take up to a millisecond longer
// in a process that has nothing else to do: the runtime waits for it with epoll_wait, which counts in milliseconds.
func nap(ns int64) bool {
	defer nappers.Add(-1)
	if nappers.Add(1) > nappersMax {
		return false
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer arenakernel.ExactSleeps()()
	_, err := shmsync.Wait(&napWord, 0, shmsync.Monotonic()+ns)
	return err == nil
}
