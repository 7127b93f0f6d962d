package park

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/asm"
)

// Spinning determines the latency of a hand-over between two CPUs: half a microsecond if the waiter
// spins, and 30 to 60 microseconds if it sleeps in the kernel. On a single CPU, spinning only
// wastes time. So a waiter spins for long on an object for which spins usually succeed, and briefly
// if they usually fail. It does not spin at all if the last releaser ran on the waiter's own CPU.
const (
	spinLeast  = 600    // ns: the budget if spins usually fail
	spinSome   = 10_000 // ns: the least budget while fewer than 1 spin of 8 fails
	spinMost   = 40_000 // ns: the budget while fewer than 1 spin of 64 fails: the cost of a sleep and a wake
	spinGiveUp = 3      // after this many failures in a row, the budget shrinks; only 1 spin in probeEvery stays long
	spinChunk  = 8      // after the first microsecond of a spin: pauses between two calls of the function done
	probeEvery = 16     // how many failed spins come between two long spins

	yieldMost    = 20_000      // ns: a releaser that gets the CPU needs less time than this to release
	yieldPause   = 30          // after a yield of t > yieldMost, no yield for yieldPause*t, so that yields cost 3 %
	yieldLongest = 100_000_000 // ns: the longest time slice, that of SCHED_RR; a longer yield counts as this long
)

// Tuning points to the words of an object that determine how long its waiters spin. The words are
// hints: a wrong value only costs time.
type Tuning struct {
	Budget  *atomic.Uint32 // 0: adaptive; otherwise the budget in ns, plus 1
	Pays    *atomic.Uint32 // a payWord
	LastCPU *atomic.Uint32 // a cpuNote: the CPUs of the last releasers
	Slot    int            // slot of this participant
}

// Spin calls the function done until it returns true, or until sleeping is likely to be faster than spinning. Spin
// reports whether that function has returned true.
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
		limit = payWord(t.Pays.Load()).budget()
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

// SpinFor calls the function done until it returns true, or until limit nanoseconds have passed.
// The argument of the function is the number of nanoseconds spent so far. SpinFor uses and changes
// no Tuning. On a machine with one CPU it does not spin.
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

// yield is used instead of spinning if the last releaser ran on this CPU. It lets that releaser run once, which
// saves the system calls of a sleep and a wake. But if a thread that computes also runs on this CPU, a yield gives
// the CPU to that thread for a whole time slice. So after a yield that took long, this process does not yield for
// thirty times as long; see noteYield.
func (t Tuning) yield(done func() bool) bool {
	p := payWord(t.Pays.Load())
	if n := p.failures(); n > 4 && n%probeEvery != 0 {
		t.note(func(p payWord) payWord { return p.afterYield(false) })
		return false
	}
	if shmsync.Monotonic() < noYieldUntil.Load() {
		return false
	}
	noteYield(shmsync.Yield())
	ok := done()
	t.note(func(p payWord) payWord { return p.afterYield(ok) })
	return ok
}

// GiveWay yields the CPU up to n times while the function done returns false. It reports whether
// that function has returned true. GiveWay stops early if a yield has let another thread compute.
func GiveWay(n int, done func() bool) bool {
	for range n {
		if shmsync.Monotonic() < noYieldUntil.Load() {
			return false
		}
		took := shmsync.Yield()
		if done() {
			return true
		}
		if noteYield(took) {
			return false
		}
	}
	return false
}

// noteYield is called after a yield that took the given number of nanoseconds. It reports whether another thread has
// computed meanwhile. If so, this process does not yield for some time. This time is limited even if this process was
// stopped during the yield, because a yield counts as at most yieldLongest.
func noteYield(took int64) bool {
	if took <= yieldMost {
		return false
	}
	noYieldUntil.Store(shmsync.Monotonic() + yieldPause*min(took, yieldLongest))
	return true
}

// noYieldUntil is the time until which this process must not yield, CLOCK_MONOTONIC ns.
var noYieldUntil atomic.Int64

// learn records in the Tuning how many nanoseconds a spin took, and whether it succeeded.
func (t Tuning) learn(spent int64, success bool) {
	t.note(func(p payWord) payWord { return p.after(spent, success) })
}

// note replaces the payWord by the result of the function next, if the budget of the object is adaptive.
func (t Tuning) note(next func(payWord) payWord) {
	if t.Budget.Load() != 0 {
		return
	}
	p := payWord(t.Pays.Load())
	if next := next(p); next != p {
		t.Pays.Store(uint32(next))
	}
}

// payWord records how successful recent spins on an object were. It is a hint: processes overwrite
// each other's values, and a wrong value only costs time.
//
//	bits 0..9    how long the spins that succeeded took: a mean, in units of 64 ns
//	bits 10..19  the share of the spins that failed: a mean, in 1/1024
//	bits 20..31  failures in a row
//
// Two processes that hand an object over to each other may both sleep. If each of them then spins for less time than a
// wake takes, both sleep again each time, and every hand-over needs a wake by the kernel. A single delay by another
// program is enough to start this. But if both processes are awake at the same time once, they need no more wakes. So
// while few spins fail, the budget is as long as a wake takes. After many failures in a row, one spin in probeEvery is
// that long.
type payWord uint32

const (
	payUnit  = 64        // ns: the unit of the mean time of successful spins
	payField = 1<<10 - 1 // the largest value of a mean
	payPart  = 32        // each spin moves the share of failures 1/payPart of the way to 0 or to payField
)

func makePay(took, share, failures uint32) payWord {
	return payWord(took | share<<10 | failures<<20)
}

func (p payWord) took() uint32     { return uint32(p) & payField }
func (p payWord) share() uint32    { return uint32(p>>10) & payField }
func (p payWord) failures() uint32 { return uint32(p >> 20) }

// budget returns the maximum length of the next spin, in ns, for an object with the payWord p.
func (p payWord) budget() int64 {
	need := min(4*payUnit*int64(p.took())+spinLeast, spinMost) // enough for nearly all spins that succeed
	switch n, share := p.failures(), p.share(); {
	case n >= spinGiveUp && n%probeEvery == 0:
		return spinMost
	case n < spinGiveUp && share < (payField+1)/64:
		return spinMost
	case n < spinGiveUp && share < (payField+1)/8:
		return max(need, spinSome)
	default:
		return max(need*int64(payField+1-share)/(payField+1)>>min(n/4, 32), spinLeast)
	}
}

// after returns the payWord after one more spin, which took the given number of nanoseconds.
func (p payWord) after(spent int64, success bool) payWord {
	took, share := p.took(), p.share()
	if !success {
		failures := (p.failures() + 1) & (1<<12 - 1)
		return makePay(took, share+(payField-share)/payPart, failures)
	}
	// Round up each change of the mean, because the mean is a whole number. If small changes were rounded to 0, the
	// mean would never reach the value that it approaches.
	now := uint32(min(spent/payUnit, payField))
	if now > took {
		took += (now - took + 7) / 8
	} else {
		took -= (took - now + 7) / 8
	}
	return makePay(took, share-(share+payPart-1)/payPart, 0)
}

// afterYield returns the payWord after a yield. A yield shows only whether the object was released, and not how long a
// spin would take.
func (p payWord) afterYield(success bool) payWord {
	if success {
		return makePay(p.took(), p.share(), 0)
	}
	return makePay(p.took(), p.share(), (p.failures()+1)&(1<<12-1))
}

// NoteCPU stores the number of this CPU in the object, for waiters that decide whether to spin.
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

// cpuNote contains the CPUs of the last two participants that released an object. It contains two,
// because a waiter that was itself the last releaser needs the CPU of the other participant. The word is a
// hint: a wrong value only costs time.
//
//	bits 0..9    CPU + 1 of the last releaser; 0 unknown
//	bits 10..19  CPU + 1 of the last release by another participant; 0 unknown
//	bits 20..30  slot of the last releaser
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

// other returns the CPU, plus 1, of the last releaser that is not the participant in the given slot.
func (n cpuNote) other(slot int) uint32 {
	if n.slot() == slot {
		return uint32(n >> 10 & noteCPUs)
	}
	return uint32(n & noteCPUs)
}

// oneCPUKnown is what oneCPU has found out: 0 nothing, 1 no, 2 yes.
var oneCPUKnown atomic.Uint32

// oneCPU reports whether the machine has only one CPU. The CPU affinity of this process does not
// matter, because its peers may run on other CPUs. If a shortage, such as a full table of
// descriptors, keeps this process from reading the number of CPUs, oneCPU returns false, and the next
// call reads again.
func oneCPU() bool {
	known := oneCPUKnown.Load()
	if known == 0 {
		known = readOneCPU("/sys/devices/system/cpu/online")
		oneCPUKnown.Store(known)
	}
	return known == 2
}

// readOneCPU reads the numbers of the CPUs from a file, and returns a value for oneCPUKnown.
func readOneCPU(path string) uint32 {
	online, err := os.ReadFile(path)
	var one bool
	switch {
	case err == nil:
		one = !strings.ContainsAny(string(online), "-,")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		one = runtime.NumCPU() == 1
	default:
		return 0
	}
	if one {
		return 2
	}
	return 1
}

// pauseNs returns how long a pause instruction takes, in 1/1024 ns. It takes 10 to 140 cycles,
// depending on the CPU.
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
