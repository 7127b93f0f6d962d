package arenakernel

import (
	"runtime"
	"sync/atomic"

	"github.com/shmsync/shmsync"
)

// A meeting is an event in this process that one goroutine waits for and another goroutine causes.
// The event is a step of joining or leaving that the death watcher does, or for which the death
// watcher waits. To wake a thread takes as long as such a step, so the waiting goroutine polls for
// a moment before it sleeps.
type meeting struct {
	done atomic.Bool
	late chan struct{} // closed after done is set
}

// awake is how long, in ns, a goroutine polls for the event of a meeting before it sleeps.
const awake = 1e5

func newMeeting() meeting { return meeting{late: make(chan struct{})} }

// arrive causes the event for which another goroutine waits. It must be called only once.
func (m *meeting) arrive() {
	m.done.Store(true)
	close(m.late)
}

// await waits until another goroutine calls arrive. If locked is true, the calling goroutine is locked to its
// thread. For such a goroutine, runtime.Gosched would switch threads, so await yields the CPU in the kernel
// instead. Meanwhile the goroutine keeps its P, the Go runtime's permission to run Go code. If there is only
// one P, the other goroutine cannot run, so await sleeps at once.
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
