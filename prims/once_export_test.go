//go:build linux

package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// ReapRunner ends the turn of the runner, as a reaper does after the runner's death.
func (o *Once) ReapRunner() { o.leave(o.load()) }

// SetRunner makes n the runner, as if n had just begun a turn.
func (o *Once) SetRunner(n arenakernel.ParticipantID) {
	o.words.state.Store(uint64(o.load().takenBy(n)))
}

// ReapBeside reaps the runner, and calls rewrite right before each try to change the word.
func (o *Once) ReapBeside(rewrite func()) {
	o.reap(func(n arenakernel.ParticipantID) bool {
		rewrite()
		return true
	})
}

// EndTurnWithoutWake ends the turn of the runner, like a reaper that has not made its wakes yet.
func (o *Once) EndTurnWithoutWake() bool {
	w := o.load()
	return o.swap(w, w.left())
}
