//go:build linux

package prims

import (
	"runtime"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// ReapProducer records that the producer died, as a reaper does.
func (f *Future) ReapProducer() {
	if _, wake := f.end(func(arenakernel.ParticipantID) bool { return true }); wake {
		f.wakeAll()
	}
}

// Overwrite stores the first word into the state and the others into the results, as a peer can.
// The remaining results become 0.
func (f *Future) Overwrite(words ...uint64) {
	for i := range f.words.results {
		v := uint64(0)
		if i+1 < len(words) {
			v = words[i+1]
		}
		f.words.results[i].Store(v)
	}
	f.words.count.state.Store(words[0])
	f.wakeAll()
}

// Word returns the value of the state.
func (f *Future) Word() uint64 { return f.words.count.state.Load() }

// DecideOnly decides the round but does not end it, like a Set that is stopped in between.
func (f *Future) DecideOnly(e shmsync.Errno) {
	s := f.load()
	f.slot(s.round()).Store(uint64(resultOf(s.round(), e)))
}

// BeginClose begins a Close, up to the point at which no call uses the handle any more. The
// returned function does the rest of the Close.
func (f *Future) BeginClose() func() {
	f.opening.refuse()
	for !f.opening.left() {
		runtime.Gosched()
	}
	return func() { f.Close() }
}

// CheckNow makes one periodic check of this handle.
func (f *Future) CheckNow() { f.check() }
