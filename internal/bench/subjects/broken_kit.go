//go:build linux

package subjects

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/peers"
)

// brokenKit has further subjects that are wrong on purpose, for scenarios that need other methods than Lock and Unlock.
var brokenKit = []*bench.Subject{
	brokenPeer("open-rw", openRW{}, "readers", "rw"),
	brokenPeer("generous", openPermits{}, "sem"),
	brokenPeer("ajar", ajar{}, "event", "seq"),
	brokenPeer("open-keys", openKeys{}, "multi"),
	brokenPeer("impatient", timedOut{}, "barrier"),
	{By: "test", Prim: "hasty", Hidden: true, InProcess: true, Scenarios: []string{"seq"}, Open: openHasty},
	{By: "test", Prim: "lossy", Hidden: true, InProcess: true, Scenarios: []string{"queue"}, Open: openLossy(0)},
	{By: "test", Prim: "stutter", Hidden: true, InProcess: true, Scenarios: []string{"cond"}, Open: openLossy(2)},
}

func brokenPeer(prim string, view any, scenarios ...string) *bench.Subject {
	return &bench.Subject{By: "test", Prim: prim, Hidden: true, Scenarios: scenarios,
		Open: func(*bench.Worker, int) (any, error) { return view, nil }}
}

// openRW is a reader/writer lock that is wrong on purpose: it excludes nobody.
type openRW struct{ openLock }

func (openRW) RLock()                         {}
func (openRW) RUnlock()                       {}
func (openRW) TryLock() bool                  { return true }
func (openRW) ReadPairs(int, *uint64) (_ int) { return 0 }

// openPermits is a semaphore that is wrong on purpose: it gives everybody a permit at once.
type openPermits struct{}

func (openPermits) Acquire() {}
func (openPermits) Release() {}

// ajar is a gate that is wrong on purpose: it lets everybody through at once.
type ajar struct{}

func (ajar) Open(uint64)      {}
func (ajar) Await(uint64)     {}
func (ajar) Increment()       {}
func (ajar) Value() uint64    { return 0 }
func (ajar) Wait(uint64) bool { return true }
func (ajar) Stop()            {}

// hasty is a sequencer that is wrong on purpose: its waits return at once.
type hasty struct{ value, stopped atomic.Uint64 }

func openHasty(w *bench.Worker, _ int) (any, error) {
	return w.Shared(func() (any, error) { return new(hasty), nil })
}

func (e *hasty) Increment()             { e.value.Add(1) }
func (e *hasty) Value() uint64          { return e.value.Load() }
func (e *hasty) Wait(token uint64) bool { return token < FarToken && e.stopped.Load() == 0 }
func (e *hasty) Stop()                  { e.stopped.Store(1) }

// openKeys is a set of locks by key that is wrong on purpose: its locks exclude nobody.
type openKeys struct{}

func (openKeys) LockKeys([]uint32)   {}
func (openKeys) UnlockKeys([]uint32) {}

// timedOut is a barrier that is wrong on purpose: it waits for nobody.
type timedOut struct{}

func (timedOut) Meet() {}

// lossy is a queue that is wrong on purpose: it loses or repeats every thousandth batch.
type lossy struct {
	peers.ChanQueue
	times, puts int
}

func openLossy(times int) func(*bench.Worker, int) (any, error) {
	return func(w *bench.Worker, _ int) (any, error) {
		q, err := w.Shared(func() (any, error) { return make(peers.ChanQueue, w.Shape.Capacity), nil })
		if err != nil {
			return nil, err
		}
		return &lossy{ChanQueue: q.(peers.ChanQueue), times: times}, nil
	}
}

func (l *lossy) Put(items []uint64) {
	times := 1
	if l.puts++; l.puts%1000 == 0 {
		times = l.times
	}
	for range times {
		l.ChanQueue.Put(items)
	}
}

// FarToken is a value so large that a sequence never reaches it by increments.
const FarToken = 1 << 40
