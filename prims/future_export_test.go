//go:build linux

package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// ReapProducer records that the producer died, as a reaper does.
func (f *Future) ReapProducer() {
	if _, wake := f.end(func(arenakernel.ParticipantID) bool { return true }); wake {
		f.wakeAll()
	}
}
