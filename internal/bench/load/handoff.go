//go:build linux

package load

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// In a handoff measurement, two threads pass a token back and forth. In some round trips, which are called looks,
// thread 0 asks the kernel whether this thread slept until the token came back. The histogram omits the looks, because
// asking takes time. The stride is the number of round trips from one look to the next. If round trips are slow, the
// stride is small, so that there are enough looks. The stride is odd, so that looks alternate between even and odd
// round trips.
const (
	lookStrideLeast = 17
	lookStrideMost  = 1021
	lookWarm        = 64 // the round trips of the warm-up, divided by lookWarm, give the stride

	metricLooked = 0 // indices of these metrics in a slot
	metricSlept  = 1
)

// workHandoff passes a token back and forth. Thread 0 passes odd values and times round trips. Thread 1 answers each
// value with the next higher one.
func workHandoff(t *thread) error {
	k, err := as[bench.Token](t)
	if err != nil {
		return err
	}
	t.await()
	if t.index != 0 {
		t.respond(k)
		return nil
	}
	measuring := false
	v := uint32(1)
	stride := uint64(lookStrideLeast)
	t0 := shmsync.Monotonic()
	for {
		phase := t.Phase.Load()
		if phase == control.PhaseStop {
			break
		}
		if phase == control.PhaseMeasure && !measuring {
			measuring = true
			stride = min(max(t.slot.Total/lookWarm, lookStrideLeast), lookStrideMost) | 1
			t.begin()
			t0 = t.slot.StartNs
		}
		k.Pass(v)
		look := measuring && t.locked && t.slot.Total%stride == 0
		var before uint64
		if look {
			before = uint64(t.rusage().Nvcsw)
		}
		if got := k.Await(); got != v+1 {
			t.violate("token %d came back as %d", v, got)
		}
		if look {
			t.slot.Metrics[metricLooked]++
			if uint64(t.rusage().Nvcsw) != before {
				t.slot.Metrics[metricSlept]++
			}
		}
		v += 2
		t1 := shmsync.Monotonic()
		t.slot.Total++
		if measuring {
			t.slot.Ops++
			if !look { // asking the kernel took time
				stats.Record(t.counts, t1-t0)
			}
		}
		t0 = t1
	}
	t.end()
	k.Pass(bench.LastToken)
	return nil
}

// respond answers each token that thread 0 passes, until the token is LastToken.
func (t *thread) respond(k bench.Token) {
	measuring := false
	for want := uint32(1); ; want += 2 {
		v := k.Await()
		if v == bench.LastToken {
			t.end()
			return
		}
		if v != want {
			t.violate("token %d arrived as %d", want, v)
		}
		if !measuring && t.Phase.Load() == control.PhaseMeasure {
			measuring = true
			t.begin()
		}
		k.Pass(v + 1)
		t.slot.Total++
		if measuring {
			t.slot.Ops++
		}
	}
}

// workWake times the wake of a sleeping thread. Thread 0 pauses, so that thread 1 falls asleep. Then it stores the
// current time in the control page and passes the token. The histogram of thread 1 has the times from this store until
// thread 1 has the token. The histogram of thread 0 has the durations of the calls that pass the token.
func workWake(t *thread) error {
	k, err := as[bench.Token](t)
	if err != nil {
		return err
	}
	t.await()
	measuring := false
	step := func() {
		if !measuring && t.Phase.Load() == control.PhaseMeasure {
			measuring = true
			t.begin()
		}
		t.slot.Total++
	}
	if t.index != 0 {
		for want := uint32(1); ; want += 2 {
			v := k.Await()
			now := shmsync.Monotonic()
			if v == bench.LastToken {
				t.end()
				return nil
			}
			d := now - t.StampNs.Load()
			if v != want || d < 0 {
				t.violate("token %d arrived as %d, %d ns after it was sent", want, v, d)
			}
			if step(); measuring {
				t.slot.Ops++
				stats.Record(t.counts, d)
			}
			k.Pass(v + 1)
		}
	}
	for v := uint32(1); ; v += 2 {
		control.SleepUntil(shmsync.Monotonic() + int64(t.GapNs))
		if t.Phase.Load() == control.PhaseStop {
			break
		}
		step()
		t0 := shmsync.Monotonic()
		t.StampNs.Store(t0)
		k.Pass(v)
		t1 := shmsync.Monotonic()
		if measuring {
			t.slot.Ops++
			stats.Record(t.counts, t1-t0)
		}
		if got := k.Await(); got != v+1 {
			t.violate("token %d came back as %d", v, got)
		}
	}
	t.end()
	k.Pass(bench.LastToken)
	return nil
}
