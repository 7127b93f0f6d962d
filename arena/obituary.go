package arena

import (
	"sync"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/asm"
)

// Offsets within an obituary.
const (
	obitSeq   = 0 // n+1 once the rest is written; 0 while it is not
	obitName  = 8
	obitPID   = 12
	obitDied  = 16
	obitFlags = 24
	obitLabel = 32

	obitLeft = 1 // closed the arena; did not die
)

// obitRing is a ring of obituaries: number n is at n mod count in it. The dead have one, and
// those who leave have one, so that leaving does not push deaths out that nobody has read yet.
type obitRing struct {
	total        Offset // how many have been written, in the header
	first, count uint64
}

var (
	obitsOfDead = obitRing{hdrObitsTotal, 0, obitDeaths}
	obitsOfLeft = obitRing{hdrLeftTotal, obitDeaths, obitCount - obitDeaths}
)

func (a *Arena) obituary(r obitRing, n uint64) Offset {
	return Offset(a.geo.obitOff + (r.first+n%r.count)*obitStride)
}

// writeObituary records who was in slot i, for errors and tools after the slot
// has been taken again. An undertaker that dies over it leaves an entry without
// its number, which readers pass over; its successor writes another.
func (a *Arena) writeObituary(i int, n Name, left bool) {
	ring, flags := obitsOfDead, uint32(0)
	if left {
		ring, flags = obitsOfLeft, obitLeft
	}
	number := a.u64(ring.total).Add(1) - 1
	o, s := a.obituary(ring, number), a.slot(i)
	a.u64(o + obitSeq).Swap(0) // not a store, which the label's bytes could pass
	a.u32(o + obitName).Store(uint32(n))
	a.u32(o + obitPID).Store(a.u32(s + slotPID).Load())
	a.u64(o + obitDied).Store(a.u64(s + slotDied).Load())
	a.u32(o + obitFlags).Store(flags)
	a.putLabel(o+obitLabel, a.getLabel(s+slotLabel))
	// sync(arena.obituary): release
	a.u64(o + obitSeq).Store(number + 1)
}

// hasObituary reports whether the death of n has been recorded.
func (a *Arena) hasObituary(n Name) bool {
	return a.findObituary(obitsOfDead, n) != nil
}

// findObituary gives the last obituary of n in a ring, or nil.
func (a *Arena) findObituary(r obitRing, n Name) *shmsync.Identity {
	total := a.u64(r.total).Load()
	for back := uint64(1); back <= min(total, r.count); back++ {
		if id, name, ok := a.readObituary(r, total-back); ok && name == n {
			return &id
		}
	}
	return nil
}

// readObituary gives obituary n of a ring, if it is still, or already, there.
func (a *Arena) readObituary(r obitRing, n uint64) (id shmsync.Identity, name Name, ok bool) {
	o := a.obituary(r, n)
	// sync(arena.obituary): acquire
	if a.u64(o+obitSeq).Load() != n+1 {
		return id, 0, false
	}
	name = Name(a.u32(o+obitName).Load() & NameMask)
	id = shmsync.Identity{
		Slot: name.Slot(), Generation: name.Generation(),
		PID:   int(a.u32(o + obitPID).Load()),
		Label: a.getLabel(o + obitLabel),
		Died:  unixTime(a.u64(o + obitDied).Load()),
	}
	asm.LoadFence() // the label's bytes are read by plain loads
	return id, name, a.u64(o+obitSeq).Load() == n+1
}

func unixTime(ns uint64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(ns))
}

// Who says who n is or was, from its slot while that has not been taken again
// and from the obituaries after that; nil when neither knows.
func (a *Arena) Who(n Name) *shmsync.Identity {
	i := n.Slot()
	if i < 1 || i > a.geo.slots {
		return nil
	}
	w := a.slotState(i)
	if w.generation() == n.Generation() && w.taken() {
		s := a.slot(i)
		id := shmsync.Identity{
			Slot: i, Generation: n.Generation(),
			PID:   int(a.u32(s + slotPID).Load()),
			Label: a.getLabel(s + slotLabel),
			Died:  unixTime(a.u64(s + slotDied).Load()),
		}
		if a.slotState(i) == w {
			return &id
		}
	}
	if id := a.findObituary(obitsOfDead, n); id != nil {
		return id
	}
	return a.findObituary(obitsOfLeft, n)
}

// deathLog tells the deaths of others to the functions given to OnDeath.
type deathLog struct {
	mu    sync.Mutex
	funcs []func(Participant) // guarded by: mu
	next  uint64              // guarded by: mu; the first obituary not told yet
	told  map[int]uint32      // guarded by: mu; the last generation of each slot whose death was told: two undertakers may write one
	holes []hole              // guarded by: mu; obituaries that were counted, but not written when we looked
	lost  uint64              // guarded by: mu; obituaries that were written over before we read them, and that nobody was told of yet
}

// hole is an obituary that is being written, or whose writer died over it, and
// then there is, or will be, another one.
type hole struct {
	number uint64
	since  time.Time
}

// holePatience is how long a watcher looks again by itself for what is being
// written. After that it looks when it is rung.
const holePatience = time.Second

// OnDeath makes f be called for every participant that dies from now on, once
// each, on a goroutine of its own. Leaving by Close is no death.
//
// The arena keeps the last 192 deaths. If this process is stopped while more
// participants die, the first of them are not told; the next one that is told says
// how many, in [Participant.Missed].
func (a *Arena) OnDeath(f func(Participant)) {
	a.mustUse("arena.on_death")
	l := &a.deaths
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.funcs) == 0 {
		l.next = a.u64(hdrObitsTotal).Load()
		l.told = map[int]uint32{}
		a.u32(a.slot(a.mySlot) + slotCaps).Or(capTold)
	}
	l.funcs = append(l.funcs, f)
}

// deliver tells the deaths that were written since the last call. It reports
// whether to look again soon, since one is being written.
func (l *deathLog) deliver(a *Arena) (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.funcs) == 0 {
		return false
	}
	total := a.u64(hdrObitsTotal).Load()
	if total < l.next { // a peer has overwritten the counter
		l.next = total - min(total, obitDeaths)
	}
	if total-l.next > obitDeaths {
		l.lost += total - obitDeaths - l.next
		l.next = total - obitDeaths
	}
	holes := l.holes
	l.holes = nil
	for ; l.next < total; l.next++ {
		holes = append(holes, hole{l.next, time.Now()})
	}
	for _, h := range holes {
		if total-h.number > obitDeaths {
			l.lost++ // written over
			continue
		}
		if !l.tell(a, h.number) {
			l.holes = append(l.holes, h)
			again = again || time.Since(h.since) < holePatience
		}
	}
	return again
}

// tell tells one death, if it is one that has not been told. It reports false
// when the obituary is not written.
func (l *deathLog) tell(a *Arena, number uint64) bool { // guarded by: mu
	id, name, ok := a.readObituary(obitsOfDead, number)
	// A slot is taken again when the death of who had it is written.
	if !ok || name.Generation() <= l.told[name.Slot()] {
		return ok
	}
	l.told[name.Slot()] = name.Generation()
	p := Participant{Identity: id, State: "dead", Missed: l.lost}
	l.lost = 0
	for _, f := range l.funcs {
		go f(p)
	}
	return true
}
