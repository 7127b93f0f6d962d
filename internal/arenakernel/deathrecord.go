package arenakernel

import (
	"slices"
	"sync"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var _ = crashpoint.Register("arena.record.numbered")

// Offsets within a death record.
const (
	deathRecordSeq   = 0 // n+1 once the other fields of record n are written; until then 0
	deathRecordID    = 8
	deathRecordPID   = 12
	deathRecordDied  = 16
	deathRecordFlags = 24
	deathRecordLabel = 32

	deathRecordLeft    = 1 // the participant did not die, but closed the arena
	deathRecordPending = 2 // the participant was never admitted, and did not begin an epoch
)

// deathRecordRing is a ring of death records: record number n is at index n modulo count. Deaths
// and orderly leaves have separate rings, so that a leave never overwrites the record of a death
// that some process has not read yet.
type deathRecordRing struct {
	total        Offset // how many records have been written, in the header
	first, count uint64
}

var (
	deathRecordsOfDead = deathRecordRing{hdrDeathRecordsTotal, 0, deathRecordDeaths}
	deathRecordsOfLeft = deathRecordRing{hdrLeftTotal, deathRecordDeaths, deathRecordCount - deathRecordDeaths}
)

func (a *Arena) deathRecord(r deathRecordRing, n uint64) Offset {
	return Offset(a.geo.deathRecordOff + (r.first+n%r.count)*deathRecordStride)
}

// recordLeave records that this participant leaves. From the record, errors and tools can describe
// the participant after another one has taken its slot.
func (a *Arena) recordLeave() {
	d := a.describe(a.mySlot)
	a.putDeathRecord(deathRecordsOfLeft, a.self, d.flags|deathRecordLeft, d.pid, d.died, d.label)
}

// mostHeirs limits how many deaths one call of recordDeaths records. Several participants may have
// died one after the other, each while it took over the slot. The bytes of a hostile peer could
// claim any number of deaths.
const mostHeirs = 256

// recordDeaths records the deaths of participants of slot i, in state w, unless they already have
// records. The first of these participants is the one that the slot describes. The others have
// later generations, up to the generation in the parameter named last, and died before they
// described themselves in the slot. recordDeaths returns false if the state has changed.
//
// If a reaper dies while it writes a record, the record has no number, and readers skip it. The
// next reaper writes another record.
func (a *Arena) recordDeaths(i int, w slotWord, last uint32) bool {
	d := a.describe(i)
	g := last
	if d.generation != 0 && d.generation < last && last-d.generation < mostHeirs {
		g = d.generation
	}
	for ; g <= last; g++ {
		of := d
		if d.generation != g {
			of = description{flags: deathRecordPending}
		}
		if !a.recordDeath(i, w, makeParticipantID(i, g), of) {
			return false
		}
	}
	return true
}

// recordDeath records the death of n, which was in slot i, unless n already has a record. It
// returns false if the slot is no longer in state w.
func (a *Arena) recordDeath(i int, w slotWord, n ParticipantID, d description) bool {
	if a.self != 0 { // otherwise this process is a joiner that owns the slot
		defer a.beginAct(n).end()
	}
	if a.hasDeathRecord(n) {
		return true
	}
	if a.slotState(i) != w {
		return false
	}
	if d.died == 0 { // the participant that marked the death has not stored the time yet, or has died before that
		d.died = uint64(time.Now().UnixNano())
	}
	a.putDeathRecord(deathRecordsOfDead, n, d.flags, d.pid, d.died, d.label)
	return true
}

// deathRecordFlags returns the flags for the death record of the participant that slot i describes.
// The flag deathRecordPending is set if the participant was never admitted and began no epoch.
func (a *Arena) deathRecordFlags(i int) uint32 {
	admission := a.u32(a.slot(i) + slotAdmission).Load()
	if admission == admissionPending || admission == admissionRefused {
		return deathRecordPending
	}
	return 0
}

func (a *Arena) putDeathRecord(ring deathRecordRing, n ParticipantID, flags, pid uint32, died uint64, label string) {
	number := a.u64(ring.total).Add(1) - 1
	crashpoint.Hit("arena.record.numbered")
	o := a.deathRecord(ring, number)
	clearBeforeLabel(a.u64(o + deathRecordSeq))
	a.u32(o + deathRecordID).Store(uint32(n))
	a.u32(o + deathRecordPID).Store(pid)
	a.u64(o + deathRecordDied).Store(died)
	a.u32(o + deathRecordFlags).Store(flags)
	a.putLabel(o+deathRecordLabel, label)
	// sync(arena.deathrecord): release
	a.u64(o + deathRecordSeq).Store(number + 1)
}

// reaped returns how many deaths and leaves have been recorded.
func (a *Arena) reaped() uint32 {
	return uint32(a.u64(hdrDeathRecordsTotal).Load() + a.u64(hdrLeftTotal).Load())
}

// hasDeathRecord reports whether the ring of death records contains a record of the death of n.
func (a *Arena) hasDeathRecord(n ParticipantID) bool {
	return a.findDeathRecord(deathRecordsOfDead, n) != nil
}

// hasRecord reports whether the rings of death records contain a record of the death of n, or of
// its leave.
func (a *Arena) hasRecord(n ParticipantID) bool {
	return a.hasDeathRecord(n) || a.findDeathRecord(deathRecordsOfLeft, n) != nil
}

// findDeathRecord returns the last death record of n in a ring, or nil.
func (a *Arena) findDeathRecord(r deathRecordRing, n ParticipantID) *shmsync.Identity {
	total := a.u64(r.total).Load()
	for back := uint64(1); back <= min(total, r.count); back++ {
		if ParticipantID(a.u32(a.deathRecord(r, total-back)+deathRecordID).Load()&ParticipantIDMask) != n {
			continue // the record of another participant, as most are: its other fields need not be read
		}
		if id, name, ok := a.readDeathRecord(r, total-back); ok && name == n {
			return &id
		}
	}
	return nil
}

// recordsPending reports whether death record number n is about a participant that was never
// admitted. The caller has already found that the record is complete.
func (a *Arena) recordsPending(n uint64) bool {
	o := a.deathRecord(deathRecordsOfDead, n)
	pending := a.u32(o+deathRecordFlags).Load()&deathRecordPending != 0
	return pending && a.u64(o+deathRecordSeq).Load() == n+1
}

// readDeathRecord returns death record n of a ring. The result named ok is false if the record is
// not written yet or has been overwritten.
func (a *Arena) readDeathRecord(r deathRecordRing, n uint64) (id shmsync.Identity, name ParticipantID, ok bool) {
	o := a.deathRecord(r, n)
	// sync(arena.deathrecord): acquire
	if a.u64(o+deathRecordSeq).Load() != n+1 {
		return id, 0, false
	}
	name = ParticipantID(a.u32(o+deathRecordID).Load() & ParticipantIDMask)
	id = shmsync.Identity{
		Slot: name.Slot(), Generation: name.Generation(),
		PID:   int(a.u32(o + deathRecordPID).Load()),
		Label: a.getLabel(o + deathRecordLabel),
		Died:  unixTime(a.u64(o + deathRecordDied).Load()),
	}
	asm.LoadFence() // the plain loads of the label must come before the next load
	return id, name, a.u64(o+deathRecordSeq).Load() == n+1
}

func unixTime(ns uint64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(ns))
}

// Who returns the identity of the participant n, living or dead. It reads n's slot. If another
// participant has taken the slot, it reads the death records. It returns nil if neither describes
// n.
func (a *Arena) Who(n ParticipantID) *shmsync.Identity {
	i := n.Slot()
	if i < 1 || i > a.geo.slots {
		return nil
	}
	for range whoTries {
		w := a.slotState(i)
		id := a.whoIn(i, w, n)
		same := a.slotState(i) == w
		if same && id != nil && (w.phase() != phaseDead && w.phase() != phaseLeaving || !a.hasRecord(n)) {
			return id
		}
		// The slot does not describe n reliably now, so search the death records. A reaper writes
		// the record, then clears the words of the slot, and then changes the state of the slot.
		// While a joiner takes over the slot, the words describe its predecessor until the
		// predecessor has a record.
		if id := a.findDeathRecord(deathRecordsOfDead, n); id != nil {
			return id
		}
		if id := a.findDeathRecord(deathRecordsOfLeft, n); id != nil || same {
			return id
		}
		// The slot has changed. If n has only just been marked dead, it has no record yet.
	}
	return nil
}

// whoTries is how often Who reads a slot that changes meanwhile. The state of a slot changes at most four
// times for one participant, and once more when a joiner takes the slot over.
const whoTries = 8

// whoIn returns the identity of the participant n from slot i, in state w. It returns nil if the slot
// does not describe n.
func (a *Arena) whoIn(i int, w slotWord, n ParticipantID) *shmsync.Identity {
	d := a.describe(i)
	described := d.generation != 0 && d.generation == n.Generation()
	switch {
	case w.taken() && described:
		return &shmsync.Identity{Slot: i, Generation: n.Generation(), PID: int(d.pid), Label: d.label, Died: unixTime(d.died)}
	case w.taken() && w.generation() == n.Generation():
		return &shmsync.Identity{Slot: i, Generation: n.Generation()} // a joiner that has not described itself yet
	}
	return nil
}

// A deathLog passes the deaths of other participants to the functions that were registered by
// OnDeath.
type deathLog struct {
	mu    sync.Mutex
	funcs []*deathFunc             // guarded by: mu
	next  uint64                   // guarded by: mu; the first death record not delivered yet
	told  map[uint64]ParticipantID // guarded by: mu; the IDs of delivered deaths, by their index in the ring
	holes []hole                   // guarded by: mu; death records that were not written yet when deliver read them
	lost  uint64                   // guarded by: mu; records that were overwritten unread and not reported yet
}

// A hole is the number of a death record that is still being written. If the writer of the record
// has died, another record of the same death will follow.
type hole struct {
	number uint64
	since  time.Time
}

// holeTimeout is how long a death watcher checks periodically whether the record of a hole has been
// written. After that, it checks only when its doorbell is rung.
const holeTimeout = time.Second

// OnDeath registers f to be called once for every participant that dies from now on, on a goroutine
// of its own. A participant that leaves by Close does not die.
//
// The arena keeps the records of the last 192 deaths. If more participants die while this process
// is stopped, f is not called for the earliest of them. The next call reports how many deaths were
// missed, in [Participant.Missed].
//
// Close of this opening ends the calls. A call that has begun may still run after Close has returned.
func (a *Arena) OnDeath(f func(Participant)) {
	a.mustBeginCall("arena.on_death")
	defer a.EndCall()
	d := &deathFunc{f: f}
	a.onDeath(d)
	a.OnEnd(d, func() { a.offDeath(d) })
}

// deathFunc is a function that is called for each death.
type deathFunc struct {
	f      func(Participant)
	atOnce bool // f never blocks, so it needs no goroutine of its own
}

// onDeath registers f for all openings of this process, one of which the caller keeps open.
func (a *Arena) onDeath(f *deathFunc) {
	l := &a.deaths
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.funcs) == 0 {
		l.told = map[uint64]ParticipantID{}
		// A process that records a death counts it, and then rings the participants that have this
		// capability. So either it rings this participant, or this participant finds the death already
		// counted. In the second case, the death came before the call of OnDeath, so f is not called for it.
		// sync(arena.told): release
		a.u32(a.slot(a.mySlot) + slotCaps).Or(capTold)
		l.next = a.u64(hdrDeathRecordsTotal).Load()
	}
	l.funcs = append(l.funcs, f)
}

// offDeath ends the calls of f. If no function is left, a death need not wake this participant any more.
func (a *Arena) offDeath(f *deathFunc) {
	l := &a.deaths
	l.mu.Lock()
	defer l.mu.Unlock()
	l.funcs = slices.DeleteFunc(l.funcs, func(g *deathFunc) bool { return g == f })
	if len(l.funcs) == 0 {
		l.holes, l.lost = nil, 0 // a function that is registered later gets no earlier deaths
		a.dropCap(capTold)
	}
}

// deliver calls the registered functions for the deaths that were recorded since the last call. It
// returns true if the caller should call it again soon, because a record is still being written.
func (l *deathLog) deliver(a *Arena) (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.funcs) == 0 {
		return false
	}
	total := a.u64(hdrDeathRecordsTotal).Load()
	if total < l.next { // a peer has overwritten the counter
		l.next = total - min(total, deathRecordDeaths)
	}
	if total-l.next > deathRecordDeaths {
		l.lost += total - deathRecordDeaths - l.next
		l.next = total - deathRecordDeaths
	}
	holes := l.holes
	l.holes = nil
	for ; l.next < total; l.next++ {
		holes = append(holes, hole{l.next, time.Now()})
	}
	for _, h := range holes {
		if total-h.number > deathRecordDeaths {
			l.lost++ // overwritten by later records
			continue
		}
		if !l.tell(a, h.number) {
			l.holes = append(l.holes, h)
			again = again || time.Since(h.since) < holeTimeout
		}
	}
	return again
}

// incomplete reports whether there are holes, that is, death records that are not written yet. The
// death watcher reads the records of the holes again when its doorbell is rung.
func (l *deathLog) incomplete() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.holes) > 0
}

// tell calls the registered functions for one death, unless an earlier call has done so. It returns
// false if the death record is not written yet.
func (l *deathLog) tell(a *Arena, number uint64) bool { // guarded by: mu
	id, name, ok := a.readDeathRecord(deathRecordsOfDead, number)
	if !ok {
		return false
	}
	// A death may have several records, with records of other deaths between them. As long as an ID
	// has a record, no other participant gets this ID.
	told := false
	for _, n := range l.told {
		told = told || n == name
	}
	l.told[number%deathRecordDeaths] = name
	if told {
		return true
	}
	p := Participant{Identity: id, State: "dead", Missed: l.lost}
	l.lost = 0
	for _, f := range l.funcs {
		if f.atOnce {
			f.f(p)
		} else {
			go f.f(p)
		}
	}
	return true
}
