package arenakernel

import (
	"runtime"
	"sync/atomic"

	"github.com/shmsync/shmsync"
)

// meeting is an event in this process that one goroutine waits for and another one causes: a step
// of joining or leaving that the death watcher takes, or waits for. Waking a thread takes as long
// as such a step, so the waiting goroutine first stays awake for a moment.
type meeting struct {
	done atomic.Bool
	late chan struct{} // closed after done is set
}

// awake is how long a goroutine waits for a meeting before it sleeps, ns.
const awake = 1e5

func newMeeting() meeting { return meeting{late: make(chan struct{})} }

// arrive causes the event. It is called once.
func (m *meeting) arrive() {
	m.done.Store(true)
	close(m.late)
}

// await waits for the event. locked says that the calling goroutine is locked to its thread. For
// such a goroutine, runtime.Gosched would switch threads, so await keeps the P and yields the CPU.
// It sleeps at once if there is no P for the other goroutine.
func (m *meeting) await(locked bool) {
	if !locked || runtime.GOMAXPROCS(0) > 1 {
		for end := shmsync.Monotonic() + awake; !m.done.Load() && shmsync.Monotonic() < end; {
			if locked {
				shmsync.Yield()
			} else {
				runtime.Gosched()
			}
		}
	}
	<-m.late
}
