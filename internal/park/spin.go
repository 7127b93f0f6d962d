package park

import (
	"runtime"
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
	spinFirst = 4_000  // ns: the budget of an object that nobody has waited for yet
	spinLeast = 600    // ns: what it shrinks to where spinning never pays
	spinMost  = 40_000 // ns: about what a sleep and a wake cost, so that at worst both are paid
	spinChunk = 16     // pauses between two looks after the first microsecond
)

// Tuning points to the words of an object that steer its waiters' spinning.
// All are hints: any value is right.
type Tuning struct {
	Budget  *atomic.Uint32 // 0: adaptive; else ns + 1
	Pays    *atomic.Uint32 // the adaptive budget in ns; 0 before the first
	LastCPU *atomic.Uint32 // a cpuNote: where those who released last were
	Slot    int            // of this participant
}

// Spin calls done until it is true, for as long as that is likely to be quicker
// than to sleep, and reports whether it was.
func (t Tuning) Spin(done func() bool) bool {
	limit := t.limit()
	if limit == 0 {
		return false
	}
	pause := pauseNs()
	chunk, spent := uint32(4), int64(0)
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

// limit is how long to spin, in nanoseconds.
func (t Tuning) limit() int64 {
	b := t.Budget.Load()
	if b == 1 || oneCPU() {
		return 0
	}
	if cpu, _, ok := asm.CPU(); ok && cpuNote(t.LastCPU.Load()).other(t.Slot) == cpu+1 {
		return 0
	}
	if b > 1 {
		return min(int64(b-1), int64(time.Millisecond))
	}
	p := int64(t.Pays.Load())
	if p == 0 {
		return spinFirst
	}
	return min(max(p, spinLeast), spinMost)
}

// learn moves the adaptive budget towards four times what success took, and
// away from what failure cost.
func (t Tuning) learn(spent int64, success bool) {
	if t.Budget.Load() != 0 {
		return
	}
	p := int64(t.Pays.Load())
	if p == 0 {
		p = spinFirst
	}
	was := p
	if success {
		p += (min(4*spent+spinLeast, spinMost) - p) / 8
	} else {
		p -= p / 8
	}
	p = min(max(p, spinLeast), spinMost)
	if p != was {
		t.Pays.Store(uint32(p))
	}
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
// object. Who waits right after its own release needs the other's. A hint: a
// torn or stale one mis-tunes.
//
//	bits 0..9    CPU + 1 of who released last; 0 unknown
//	bits 10..19  CPU + 1 of the one before it that was another participant
//	bits 20..30  slot of who released last
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

var oneCPU = sync.OnceValue(func() bool { return runtime.NumCPU() == 1 })

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
