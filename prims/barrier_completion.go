package prims

import (
	"context"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

// runCompletion calls the function Completion of the options, and then ends the phase.
func (x *Barrier) runCompletion() error {
	crashpoint.Hit("barrier.complete.taken")
	returned := false
	defer func() {
		if !returned {
			x.inside.end()
			x.giveUp()
		}
	}()
	race.Acquire(x.key)
	x.inside.begin()
	x.completion()
	returned = true
	x.inside.end() // the next Completion, of another goroutine, may begin as soon as the phase ends
	race.ReleaseMerge(x.key)
	crashpoint.Hit("barrier.complete.returned")
	if _, _, err := x.change(x.slot, func(s *barrierState, _ *barrierShare) {
		if s.completer == x.name { // this is false only if a peer has overwritten the words of the Barrier
			s.end()
		}
	}); err != nil {
		return err
	}
	crashpoint.Hit("barrier.complete.opened")
	return x.tell()
}

// giveUp breaks the phase because the Completion of this process has panicked.
func (x *Barrier) giveUp() {
	x.change(x.slot, func(s *barrierState, _ *barrierShare) {
		if s.completer == x.name {
			s.giveUp()
		}
	})
	x.tell()
}

// mustNotComplete panics if the calling goroutine itself runs the completion of this phase. The caller is about to
// wait for the end of the phase, but the phase ends only after the completion. The parameter completer is the
// participant that runs the completion.
func (x *Barrier) mustNotComplete(ctx context.Context, call string, completer arenakernel.ParticipantID) {
	if completer == x.name {
		x.opening.mustNotWaitForSelf(ctx, call)
	}
}
