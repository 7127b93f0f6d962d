package park

import (
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/asm"
)

// Spinning decides the latency of a hand-over between two CPUs: one that is
// caught while spinning takes half a microsecond, one that goes through the
// kernel thirty to sixty. On one CPU it is pure waste. So it is short, longer
// where it has paid off on this object, and absent where who released last was
// on this very CPU.
const (
	spinLeast  = 600    // ns: what the budget shrinks to where spinning never pays
	spinMost   = 40_000 // ns: about what a sleep and a wake cost, so that at worst both are paid
	spinChunk  = 8      // pauses between two looks after the first microsecond
	probeEvery = 16     // failures from one long spin to the next

	yieldMost  = 20_000 // ns: longer than the other party of a hand-over would run
	yieldPause = 30     // times what a longer one took nobody yields: 3 % is lost at most
)

// Tuning points to the words of an object that steer its waiters' spinning.
// All are hints: any value is right.
type Tuning struct {
	Budget  *atomic.Uint32 // 0: adaptive; else ns + 1
	Pays    *atomic.Uint32 // a payWord
	LastCPU *atomic.Uint32 // a cpuNote: where those who released last were
	Slot    int            // of this participant
}

// Spin calls done until it is true, for as long as that is likely to be quicker
// than to sleep, and reports whether it was.
func (t Tuning) Spin(done func() bool) bool {
	b := t.Budget.Load()
	if b == 1 || oneCPU() {
		return false
	}
	if cpu, _, ok := asm.CPU(); ok && cpuNote(t.LastCPU.Load()).other(t.Slot) == cpu+1 {
		return t.yield(done)
	}
	limit := min(int64(b-1), int64(time.Millisecond))
	if b == 0 {
		p := payWord(t.Pays.Load())
		limit = p.budget()
		if p.failures()%probeEvery == 0 {
			limit = spinMost
		}
	}
	pause := pauseNs()
	chunk, spent := uint32(2), int64(0)
	for spent < limit {
		asm.Pause(chunk)
		spent += int64(chunk) * pause / 1024
		if done() {
			t.learn(spent, true)
			return true
		}
		if spent > 1000 {
			chunk = spinChunk
		}
	}
	t.learn(spent, false)
	return false
}

// SpinFor calls done, with the nanoseconds that it has spun for, until it is true or
// the limit is reached. It learns nothing. On a machine of one CPU it does not spin.
func SpinFor(limit int64, done func(spent int64) bool) {
	if oneCPU() {
		return
	}
	pause, spent := pauseNs(), int64(0)
	for chunk := uint32(2); spent < limit && !done(spent); {
		asm.Pause(chunk)
		spent += int64(chunk) * pause / 1024
		if spent > 1000 {
			chunk = spinChunk
		}
	}
}

// yield is what takes the place of spinning where the other party is on this
// very CPU: it lets that run, once, which saves the system calls of a sleep and a
// wake. Beside somebody who computes it would hand the CPU over for a whole time
// slice instead; so after a long one this process does not yield for thirty
// times as long.
func (t Tuning) yield(done func() bool) bool {
	p := payWord(t.Pays.Load())
	if n := p.failures(); n > 4 && n%probeEvery != 0 {
		t.learn(0, false)
		return false
	}
	if shmsync.Monotonic() < noYieldUntil.Load() {
		return false
	}
	if took := shmsync.Yield(); took > yieldMost {
		noYieldUntil.Store(shmsync.Monotonic() + yieldPause*took)
	}
	ok := done()
	t.learn(0, ok)
	return ok
}

// GiveWay gives the CPU to others up to n times while done is false, and reports
// whether done has become true. It leaves off where that lets somebody compute.
func GiveWay(n int, done func() bool) bool {
	for range n {
		if shmsync.Monotonic() < noYieldUntil.Load() {
			return false
		}
		took := shmsync.Yield()
		if done() {
			return true
		}
		if took > yieldMost {
			noYieldUntil.Store(shmsync.Monotonic() + yieldPause*took)
			return false
		}
	}
	return false
}

// noYieldUntil is when this process may yield again, CLOCK_MONOTONIC ns.
var noYieldUntil atomic.Int64

// learn moves the adaptive budget towards four times what success took, and
// away from what failure cost.
func (t Tuning) learn(spent int64, success bool) {
	if t.Budget.Load() != 0 {
		return
	}
	p := payWord(t.Pays.Load())
	if next := p.after(spent, success); next != p {
		t.Pays.Store(uint32(next))
	}
}

// payWord is what spinning has paid lately on an object. A hint: processes
// overwrite one another's, and any value is right.
//
//	bits 0..19   budget in ns; all-zero memory probes first
//	bits 20..31  failures in a row
//
// Two parties that have both gone to sleep wake each other through the kernel
// for ever if they spin for less than that takes, although they would do without
// it if they once met awake. So now and then a spin lasts as long as a wake.
type payWord uint32

func (p payWord) failures() uint32 { return uint32(p >> 20) }

func (p payWord) budget() int64 {
	return min(max(int64(p&(1<<20-1)), spinLeast), spinMost)
}

// after is the word after a spin of that many nanoseconds.
func (p payWord) after(spent int64, success bool) payWord {
	budget := p.budget()
	if !success {
		failures := (p.failures() + 1) & (1<<12 - 1)
		return payWord(budget-budget/8) | payWord(failures)<<20
	}
	budget += (min(4*spent+spinLeast, spinMost) - budget) / 8
	return payWord(budget) | 1<<20 // the next one need not probe
}

// NoteCPU leaves this CPU's number for those who wait.
func (t Tuning) NoteCPU() {
	cpu, _, ok := asm.CPU()
	if !ok {
		return
	}
	old := cpuNote(t.LastCPU.Load())
	if note := old.by(t.Slot, cpu); note != old {
		t.LastCPU.Store(uint32(note))
	}
}

// cpuNote says on which CPUs the last two participants were that released an
// object. Whoever waits right after its own release needs the other's. A hint: a
// torn or stale one mis-tunes.
//
//	bits 0..9    CPU + 1 of whoever released last; 0 unknown
//	bits 10..19  CPU + 1 of the one before it that was another participant
//	bits 20..30  slot of whoever released last
type cpuNote uint32

const noteCPUs = 1<<10 - 1

func (n cpuNote) by(slot int, cpu uint32) cpuNote {
	cpu++
	if cpu > noteCPUs {
		cpu = 0
	}
	before := n & noteCPUs
	if n.slot() == slot {
		before = n >> 10 & noteCPUs
	}
	return cpuNote(cpu) | before<<10 | cpuNote(slot)<<20
}

func (n cpuNote) slot() int { return int(n >> 20 & (1<<11 - 1)) }

// other is CPU + 1 of the last releaser that is not the participant in slot.
func (n cpuNote) other(slot int) uint32 {
	if n.slot() == slot {
		return uint32(n >> 10 & noteCPUs)
	}
	return uint32(n & noteCPUs)
}

// oneCPU reports whether the machine has one CPU. That this process is confined
// to one says nothing: its peers may be on others.
var oneCPU = sync.OnceValue(func() bool {
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return runtime.NumCPU() == 1
	}
	return !strings.ContainsAny(string(online), "-,")
})

// pauseNs is how long a pause takes, in 1/1024 ns: 10 to 140 cycles, depending
// on the CPU.
var pauseNs = sync.OnceValue(func() int64 {
	const n = 200
	best := int64(1 << 40)
	for range 5 {
		start := shmsync.Monotonic()
		asm.Pause(n)
		best = min(best, shmsync.Monotonic()-start)
	}
	return max(best*1024/n, 1024)
})
