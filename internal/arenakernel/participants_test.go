//go:build linux

package arenakernel

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

// newMemfdArena makes an arena in which this process is the only participant.
func newMemfdArena(t *testing.T, slots int) *Arena {
	seg, err := shm.CreateMemfd("test", 1<<20, func(s *shm.Segment) error { return format(s, slots, false) }, nil)
	require.NoError(t, err)
	a, err := FromSegment(seg, &Options{Label: "tester"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return a
}

func TestNameWords(t *testing.T) {
	for _, slot := range []int{1, 2, 1023, MaxSlots} {
		for _, generation := range []uint32{1, 2, 1 << 17, maxGeneration} {
			n := makeParticipantID(slot, generation)
			require.Equal(t, slot, n.Slot())
			require.Equal(t, generation, n.Generation())
			require.Equal(t, n, n&ParticipantIDMask)
			require.Equal(t, fmt.Sprintf("%d.%d", slot, generation), n.String())
			for p := phaseFree; p <= phaseDead; p++ {
				w := makeSlotWord(p, generation)
				require.Equal(t, p, w.phase())
				require.Equal(t, generation, w.generation())
				require.Equal(t, n, participantIn(slot, w))
				require.True(t, w.is(p, generation))
				require.Equal(t, makeSlotWord(phaseDead, generation), w.with(phaseDead))
				require.Equal(t, p == phaseJoining || p == phaseLive || p == phaseLeaving, w.present())
				require.Equal(t, w.present() || p == phaseDead, w.taken())
				require.Equal(t, fmt.Sprintf("%v.%d", p, generation), w.String())
			}
		}
	}
	n := makeParticipantID(5, 7)
	require.True(t, n.Covers(n))
	require.True(t, n.Covers(makeParticipantID(5, 6)))
	require.False(t, n.Covers(makeParticipantID(5, 8)))
	require.False(t, n.Covers(makeParticipantID(6, 6)))
	require.False(t, n.Covers(0))
	require.False(t, slotWord(6).present() || slotWord(7).taken())
}

// TestNamesOfNobody: an ID that no participant has counts as dead, whatever its bits are.
func TestNamesOfNobody(t *testing.T) {
	a := newMemfdArena(t, 4)
	require.True(t, a.Current(a.Self()))
	require.False(t, a.Dead(a.Self()))
	for _, n := range []ParticipantID{
		0, makeParticipantID(0, 1), makeParticipantID(1, 0), makeParticipantID(1, 2), makeParticipantID(2, 0), makeParticipantID(2, 1),
		makeParticipantID(5, 1), makeParticipantID(MaxSlots, 1), makeParticipantID(1, maxGeneration), ParticipantIDMask, 1<<32 - 1,
	} {
		require.False(t, a.Current(n), "%v", n)
		require.True(t, a.Dead(n), "%v", n)
		require.Nil(t, a.Who(n), "%v", n)
	}
	_, _, ok := a.AliveWord(a.Self())
	require.False(t, ok, "nobody waits for its own death")
	_, _, ok = a.AliveWord(makeParticipantID(9, 1))
	require.False(t, ok)
}

func TestLabelsAreCut(t *testing.T) {
	a := newMemfdArena(t, 4)
	off := a.slot(3) + slotLabel
	for _, label := range []string{"", "x", strings.Repeat("y", labelBytes), strings.Repeat("z", labelBytes+1)} {
		a.putLabel(off, label)
		require.Equal(t, label[:min(len(label), labelBytes)], a.getLabel(off))
	}
	a.u32(off).Store(^uint32(0)) // the label has an impossible length
	require.Len(t, a.getLabel(off), labelBytes)
	require.Zero(t, a.u32(a.slot(3)+slotAlive).Load(), "a word behind the label has changed")
}

func TestAnnounceRecords(t *testing.T) {
	a := newMemfdArena(t, 4)
	var got []int
	for i := range announceCount {
		k, ok := a.Announce(Offset(64*i), Offset(64*i+8), uint64(i), announceCount)
		require.True(t, ok)
		require.NotContains(t, got, k)
		got = append(got, k)
	}
	_, ok := a.Announce(64, 72, 0, announceCount)
	require.False(t, ok)
	owed := a.owed(makeParticipantID(2, 1))
	require.Len(t, owed, announceCount)
	require.Equal(t, OwedOne, owed[64*5])
	require.Equal(t, OwedAll, a.owed(a.self)[64*5], "the dead participant itself has recorded the sleep")
	a.Retract(got[7])
	_, ok = a.Announce(8, 16, 0, announceCount-1)
	require.False(t, ok, "more records are in use than the limit allows")
	k, ok := a.Announce(8, 16, 0, announceCount)
	require.True(t, ok)
	require.Equal(t, got[7], k)
	for _, k := range got {
		a.Retract(k)
	}
	require.Empty(t, a.owed(makeParticipantID(2, 1)))
	require.Zero(t, a.announceMap.Load())
}

// deathsOf returns a channel with the deaths that an arena reports.
func deathsOf(a *Arena) <-chan Participant {
	c := make(chan Participant, 1000)
	a.OnDeath(func(p Participant) { c <- p })
	return c
}

func next(t *testing.T, c <-chan Participant) Participant {
	t.Helper()
	select {
	case p := <-c:
		return p
	case <-time.After(bound()):
		t.Fatal("no death was told")
		panic("not reached")
	}
}

// TestDeathRecordBeingWritten checks the reports of deaths while one death record is counted, but not written yet. Its
// writer may be stopped or dead. Reports of other deaths are not delayed. The death in this record is reported when the
// record is written.
func TestDeathRecordBeingWritten(t *testing.T) {
	a := newMemfdArena(t, 4)
	told := deathsOf(a)
	hole := a.u64(hdrDeathRecordsTotal).Add(1) - 1
	a.putDeathRecord(deathRecordsOfDead, makeParticipantID(2, 1), 0, 0, 0, "")
	a.ringTold()
	require.Equal(t, makeParticipantID(2, 1), next(t, told).Name())

	o := a.deathRecord(deathRecordsOfDead, hole)
	a.u32(o + deathRecordID).Store(uint32(makeParticipantID(3, 9)))
	a.putLabel(o+deathRecordLabel, "late")
	a.u64(o + deathRecordSeq).Store(hole + 1)
	a.ringTold()
	p := next(t, told)
	require.Equal(t, makeParticipantID(3, 9), p.Name())
	require.Equal(t, "late", p.Label)

	// Another reaper does not know of this record and writes it again. The death is not reported again.
	// A record of a leave is not reported as a death.
	a.putDeathRecord(deathRecordsOfDead, makeParticipantID(3, 9), 0, 0, 0, "")
	a.putDeathRecord(deathRecordsOfLeft, makeParticipantID(4, 1), deathRecordLeft, 0, 0, "")
	a.putDeathRecord(deathRecordsOfDead, makeParticipantID(4, 2), 0, 0, 0, "")
	a.ringTold()
	require.Equal(t, makeParticipantID(4, 2), next(t, told).Name())
	require.Empty(t, told)
}

// TestOnDeathEndsWithItsOpening checks that the functions that were registered through an opening are not
// called for deaths after its Close. The functions of other openings are still called. If no function is left,
// and a new one is registered, the new function is called only for later deaths.
func TestOnDeathEndsWithItsOpening(t *testing.T) {
	a := newMemfdArena(t, 4)
	reopened := func() *Arena {
		seg, err := shm.FromFile(a.Segment().File(), nil)
		require.NoError(t, err)
		b, err := FromSegment(seg, nil)
		require.NoError(t, err)
		require.Same(t, a.membership, b.membership)
		return b
	}
	die := func(generation uint32) ParticipantID {
		n := makeParticipantID(3, generation)
		a.putDeathRecord(deathRecordsOfDead, n, 0, 0, 0, "")
		a.ringTold()
		return n
	}
	b, c := reopened(), reopened()
	first, second := deathsOf(b), deathsOf(c)
	n := die(1)
	require.Equal(t, n, next(t, first).Name())
	require.Equal(t, n, next(t, second).Name())
	require.NoError(t, b.Close())
	hole := a.u64(hdrDeathRecordsTotal).Add(1) - 1 // a death record that is written only when c is closed
	n = die(2)
	require.Equal(t, n, next(t, second).Name())
	require.Empty(t, first)

	caps := a.slotCaps(a.mySlot)
	require.NotZero(t, caps&capTold)
	require.NoError(t, c.Close())
	require.Empty(t, a.deaths.funcs)
	require.Equal(t, caps&^capTold, a.slotCaps(a.mySlot), "nobody has to ring this participant")
	word := a.u32(a.slot(a.mySlot) + slotCaps)
	own, other := word.Load(), makeCaps(capTold, a.self.Generation()+1)
	word.Store(other)
	a.dropCap(capTold)
	require.Equal(t, other, word.Swap(own), "the capabilities of another participant")
	die(3)
	third := deathsOf(a)
	a.u64(a.deathRecord(deathRecordsOfDead, hole) + deathRecordSeq).Store(hole + 1)
	n = die(4)
	require.Equal(t, n, next(t, third).Name(), "a death from before the call of OnDeath must not be reported")
	require.Empty(t, third)
	require.Empty(t, second)
	require.Empty(t, first)
}

// TestOnEventEndsWithItsOpening checks that a death no longer wakes this process after the last opening with a
// function for events was closed. A function that is registered later is called only for later deaths.
func TestOnEventEndsWithItsOpening(t *testing.T) {
	ta := newTestArena(t, 4)
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	die := func(generation uint32) {
		a.putDeathRecord(deathRecordsOfDead, makeParticipantID(3, generation), 0, 0, 0, "")
		a.ringTold()
	}
	open := func() (*Arena, chan Event) {
		events := make(chan Event, 8)
		opts := ta.opts
		opts.OnEvent = func(e Event) { events <- e }
		b, err := Open(ta.name, &opts)
		require.NoError(t, err)
		return b, events
	}
	b, first := open()
	c, second := open()
	die(1)
	require.EqualValues(t, 1, (<-first).Who.Generation)
	require.EqualValues(t, 1, (<-second).Who.Generation)
	require.NoError(t, b.Close())
	require.NotZero(t, a.slotCaps(a.mySlot)&capTold)
	die(2)
	require.EqualValues(t, 2, (<-second).Who.Generation)
	require.NoError(t, c.Close())
	require.Empty(t, a.deaths.funcs)
	require.Zero(t, a.slotCaps(a.mySlot)&capTold)
	die(3)
	d, third := open()
	die(4)
	require.EqualValues(t, 4, (<-third).Who.Generation)
	require.NoError(t, d.Close())
	require.Empty(t, first)
	require.Empty(t, second)
}

// TestDeathRecordsOverflow: more deaths are recorded than the ring has room for. The latest deaths are
// reported, and the method Who finds their records.
func TestDeathRecordsOverflow(t *testing.T) {
	a := newMemfdArena(t, 4)
	told := deathsOf(a)
	a.deaths.mu.Lock() // keeps the watcher from reading the records
	const n = 3 * deathRecordDeaths
	for i := range uint32(n) {
		a.putDeathRecord(deathRecordsOfDead, makeParticipantID(2, i+1), 0, 0, 0, "")
	}
	a.deaths.mu.Unlock()
	a.ringTold()
	seen, missed := map[ParticipantID]bool{}, uint64(0)
	for len(seen) < deathRecordDeaths {
		p := next(t, told)
		seen[p.Name()] = true
		missed += p.Missed
	}
	require.EqualValues(t, n-deathRecordDeaths, missed)
	for i := range uint32(deathRecordDeaths) {
		require.True(t, seen[makeParticipantID(2, n-i)])
		require.NotNil(t, a.Who(makeParticipantID(2, n-i)))
	}
	require.Nil(t, a.Who(makeParticipantID(2, n-deathRecordDeaths)))
	require.Empty(t, told)

	// If a peer has overwritten the counter, no reader loops for ever.
	for _, total := range []uint64{^uint64(0), 1 << 63, 0, 5} {
		a.u64(hdrDeathRecordsTotal).Store(total)
		a.ringTold()
		a.deaths.deliver(a)
		a.Who(makeParticipantID(3, 1))
	}
}

// TestToldDeathsAreBounded: the memory that a process needs for deaths that it has reported does not
// grow with their number.
func TestToldDeathsAreBounded(t *testing.T) {
	a := newMemfdArena(t, 4)
	told := deathsOf(a)
	const n = 3 * deathRecordDeaths
	seen := map[ParticipantID]bool{}
	for i := range uint32(n) {
		for range 2 { // two reapers record the same death
			a.putDeathRecord(deathRecordsOfDead, makeParticipantID(2+int(i%3), i/3+1), 0, 0, 0, "")
			a.deaths.deliver(a)
		}
		p := next(t, told)
		require.False(t, seen[p.Name()], "told twice")
		seen[p.Name()] = true
	}
	require.Len(t, seen, n)
	a.deaths.mu.Lock()
	defer a.deaths.mu.Unlock()
	require.Len(t, a.deaths.told, deathRecordDeaths)
}

// TestDeathsOfSuccessorsAreToldOnce: two processes each record the deaths of a participant and of the
// next participant in its slot. Each death is reported once.
func TestDeathsOfSuccessorsAreToldOnce(t *testing.T) {
	a := newMemfdArena(t, 4)
	told := deathsOf(a)
	one, two, last := makeParticipantID(2, 1), makeParticipantID(2, 2), makeParticipantID(3, 1)
	record := func(dead ...ParticipantID) {
		for _, n := range dead {
			a.putDeathRecord(deathRecordsOfDead, n, 0, 0, 0, "")
		}
		a.deaths.deliver(a)
	}
	record(one, two)
	require.ElementsMatch(t, []ParticipantID{one, two}, []ParticipantID{next(t, told).Name(), next(t, told).Name()})
	a.deaths.mu.Lock()
	a.deaths.lost = 7 // the next report of a death contains this number
	a.deaths.mu.Unlock()
	record(one, two, last)
	p := next(t, told)
	require.Equal(t, last, p.Name())
	require.EqualValues(t, 7, p.Missed)
}

// TestDeclaredDead: a process finds that its slot was taken away. It panics, because it must not
// continue.
func TestDeclaredDead(t *testing.T) {
	a := newMemfdArena(t, 4)
	live := a.slotState(1)
	for _, w := range []slotWord{live.with(phaseDead), live.with(phaseFree), makeSlotWord(phaseLive, 2), makeSlotWord(phaseJoining, 2), 0} {
		b := &Arena{membership: &membership{mySlot: 1}}
		b.core.memory, b.geo, b.self, b.label = newMemory(slices.Clone(a.bytes)), a.geo, a.self, "the arena"
		b.checkSelf()
		b.u32(b.slot(1) + slotState).Store(uint32(w))
		require.PanicsWithValue(t, "shmsync: the arena: this process was declared dead by a peer (slot 1.1 is "+w.String()+")", b.checkSelf)
	}
	b := &Arena{membership: &membership{mySlot: 1}}
	b.core.memory, b.geo, b.self = newMemory(slices.Clone(a.bytes)), a.geo, a.self
	b.u32(b.slot(1) + slotState).Store(uint32(live.with(phaseLeaving)))
	b.checkSelf()
	require.Equal(t, "tester", a.Who(a.self).Label)
	var _ shmsync.Identity = *a.Who(a.self)
}

// TestReaperThatWaitsLeavesTheSlotToOthers: a reaper has to wait before it may reclaim memory. During
// the wait the slot names no reaper, so another process can continue if the reaper is stopped.
func TestReaperThatWaitsLeavesTheSlotToOthers(t *testing.T) {
	a := newMemfdArena(t, 4)
	a.reapMu.Lock() // as if the death watcher waited
	defer a.reapMu.Unlock()
	dead := makeSlotWord(phaseDead, 5)
	a.u32(a.slot(3) + slotState).Store(uint32(dead))
	a.finish(3, &reapProgress{of: dead, words: true, data: true, written: shmsync.Monotonic() + 1e9})
	require.Equal(t, dead, a.slotState(3))
	require.Zero(t, a.u32(a.slot(3)+slotReaper).Load())
}

// TestSlotIsInheritedWhenItsDeadHasEnded checks that a joiner takes over the slot of a dead participant only
// after the kernel has marked all alive words of the slot. Otherwise [Arena.Gone] would return true too early.
// The arena has no byte locks, so only these marks show that the dead process writes no more.
func TestSlotIsInheritedWhenItsDeadHasEnded(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a := p.join(1)
	a.mySlot = 0 // this process has no slot yet
	live := makeSlotWord(phaseLive, 5)
	a.u32(a.slot(3) + slotState).Store(uint32(live))
	a.u32(a.slot(3) + slotCaps).Store(makeCaps(capRobust, a.slotState(3).generation()))
	a.u32(a.aliveWord(3, 0)).Store(shmsync.RobustOwnerDied)
	require.Zero(t, a.inherit(3, live, "heir"))
	require.Equal(t, live.with(phaseDead), a.slotState(3))
	for k := range aliveWords {
		a.u32(a.aliveWord(3, k)).Store(shmsync.RobustOwnerDied)
	}
	require.EqualValues(t, 6, a.inherit(3, a.slotState(3), "heir"))
	require.Equal(t, makeSlotWord(phaseJoining, 6), a.slotState(3))
	d := a.describe(3)
	a.describeSelf(3, 6, "heir") // as fillSlot does later
	require.Equal(t, a.describe(3), d)

	// A participant that died before it became live has no marks.
	joined := makeSlotWord(phaseDead, 5)
	a.u32(a.slot(4) + slotState).Store(uint32(joined))
	require.EqualValues(t, 6, a.inherit(4, joined, "heir"))
}

// TestReaperOfUnknownKindKeepsTouchedChunks: a reaper that does not know the kind of an object cannot
// take back what the dead participant holds of the object. It keeps the set of chunks that the dead
// participant has touched, so the next reaper of the slot finds the object.
func TestReaperOfUnknownKindKeepsTouchedChunks(t *testing.T) {
	a := newMemfdArena(t, 4)
	_, _, err := a.OpenObject(ObjectSpec{Name: "x", Kind: KindOf("huh?"), Version: 1, Size: 8})
	require.NoError(t, err)
	die := func(slot int, touched uint64) {
		a.reapMu.Lock()
		a.u64(a.touchedWord(slot, 0)).Store(touched)
		a.u32(a.slot(slot) + slotState).Store(uint32(makeSlotWord(phaseDead, 5)))
		a.reapMu.Unlock()
		a.follow(slot)
		pollFor(t, a, func() bool { return a.slotState(slot).phase() == phaseFree })
	}
	die(3, ^uint64(0))
	require.Equal(t, ^uint64(0), a.u64(a.touchedWord(3, 0)).Load())
	die(4, 1<<63) // a chunk without objects
	require.Zero(t, a.u64(a.touchedWord(4, 0)).Load())
}

var (
	versionedKind     = KindOf("VERS")
	versionedRepaired atomic.Uint32 // bit k is set if Repair was called for an object of version k
)

func init() {
	RegisterKind(KindOps{Kind: versionedKind, Version: 2, Repair: func(_ *Arena, o Object, _ ParticipantID) bool {
		versionedRepaired.Or(1 << o.Version)
		return true
	}})
}

// TestReaperOfAnotherVersionLeavesTheObject: a reaper that knows only another version of an object's
// kind cannot read the object. It treats the object like an object of an unknown kind, so the next
// reaper of the slot finds it.
func TestReaperOfAnotherVersionLeavesTheObject(t *testing.T) {
	for version, known := range map[uint16]bool{1: false, 2: true, 3: false} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			a := newMemfdArena(t, 4)
			o, _, err := a.OpenObject(ObjectSpec{Name: "x", Kind: versionedKind, Version: version, Size: 8})
			require.NoError(t, err)
			a.CloseObject(o)
			versionedRepaired.Store(0)
			a.reapMu.Lock()
			a.u64(a.touchedWord(3, 0)).Store(^uint64(0))
			a.u32(a.slot(3) + slotState).Store(uint32(makeSlotWord(phaseDead, 5)))
			a.reapMu.Unlock()
			a.follow(3)
			pollFor(t, a, func() bool { return a.slotState(3).phase() == phaseFree })
			if known {
				require.EqualValues(t, 1<<version, versionedRepaired.Load())
				require.Zero(t, a.u64(a.touchedWord(3, 0)).Load())
			} else {
				require.Zero(t, versionedRepaired.Load())
				require.Equal(t, ^uint64(0), a.u64(a.touchedWord(3, 0)).Load())
			}
			_, known := kindOps(versionedKind, version)
			require.Equal(t, version == 2, known)
		})
	}
}

// TestWhoReadsTheRecordWhileTheSlotIsCleared: before a participant frees a slot, it clears the words of
// the slot. Meanwhile Who reads the identity of the dead participant from the death record.
func TestWhoReadsTheRecordWhileTheSlotIsCleared(t *testing.T) {
	a := newMemfdArena(t, 4)
	for k, p := range []phase{phaseDead, phaseLeaving} {
		w := makeSlotWord(p, uint32(5+k))
		n := participantIn(3, w)
		a.u32(a.slot(3) + slotState).Store(uint32(w))
		a.u32(a.slot(3) + slotPID).Store(4711)
		a.putLabel(a.slot(3)+slotLabel, "worker")
		a.u32(a.slot(3) + slotDescribed).Store(w.generation())
		require.Equal(t, 4711, a.Who(n).PID, "the slot still describes the participant, and there is no record yet")
		ring := map[phase]deathRecordRing{phaseDead: deathRecordsOfDead, phaseLeaving: deathRecordsOfLeft}[p]
		a.putDeathRecord(ring, n, 0, 4711, 0, "worker")
		a.u32(a.slot(3) + slotPID).Store(0)
		a.putLabel(a.slot(3)+slotLabel, "")
		who := a.Who(n)
		require.Equal(t, 4711, who.PID)
		require.Equal(t, "worker", who.Label)
		a.u32(a.slot(3) + slotState).Store(uint32(makeSlotWord(phaseFree, uint32(5+k))))
	}
}

// TestWhoIsMarkedDeadMeanwhile: a participant is marked dead while another one calls Who. The death has no
// record yet, but the slot still describes the participant.
func TestWhoIsMarkedDeadMeanwhile(t *testing.T) {
	a := newMemfdArena(t, 4)
	a.reapMu.Lock() // the death watcher must not clean up
	defer a.reapMu.Unlock()
	live := makeSlotWord(phaseLive, 5)
	state := a.u32(a.slot(3) + slotState)
	defer state.Store(0)
	a.u32(a.slot(3) + slotPID).Store(4711)
	a.u32(a.slot(3) + slotDescribed).Store(live.generation())
	var round atomic.Uint32 // odd while Who may run
	marked := make(chan struct{})
	rounds := uint32(proctest.Rounds(20_000, 200_000))
	go func() {
		defer close(marked)
		for r := range rounds {
			for round.Load() != 2*r+1 {
				runtime.Gosched()
			}
			for range r % 64 { // meet Who at different points
				asm.Pause(1)
			}
			state.Store(uint32(live.with(phaseDead)))
			round.Add(1)
		}
	}()
	missed := 0
	for r := range rounds {
		state.Store(uint32(live))
		round.Store(2*r + 1)
		for round.Load() == 2*r+1 {
			if id := a.Who(participantIn(3, live)); id == nil || id.PID != 4711 {
				missed++
			}
			runtime.Gosched()
		}
	}
	<-marked
	require.Zero(t, missed)
}

// TestDeathWithoutATimeIsRecorded: a participant is killed after it has marked another one dead and before
// it has stored the time of the death. The death record then contains the time at which the record was written.
func TestDeathWithoutATimeIsRecorded(t *testing.T) {
	a := newMemfdArena(t, 4)
	a.reapMu.Lock() // the death watcher must not clean up
	defer a.reapMu.Unlock()
	dead := makeSlotWord(phaseDead, 5)
	a.u32(a.slot(3) + slotState).Store(uint32(dead))
	defer a.u32(a.slot(3) + slotState).Store(0)
	a.u32(a.slot(3) + slotPID).Store(4711)
	a.u32(a.slot(3) + slotDescribed).Store(dead.generation())
	before := time.Now()
	require.True(t, a.recordDeaths(3, dead, dead.generation()))
	id := a.findDeathRecord(deathRecordsOfDead, participantIn(3, dead))
	require.NotNil(t, id)
	require.Equal(t, 4711, id.PID)
	require.False(t, id.Died.Before(before), "%v", id.Died)
}

// TestLateMarkerDatesNoLaterParticipant: a process marks a participant dead, and is stopped before it stores the time
// of the death. When it goes on, another participant has the slot. The stored time must not count as the time of the
// later participant's death.
func TestLateMarkerDatesNoLaterParticipant(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b := p.join(1), p.join(2)
	b.describeSelf(2, b.self.Generation(), "first")
	first := a.slotState(2)
	require.Zero(t, a.describe(2).died)
	p.kill(b.self)
	c := p.join(2)
	c.describeSelf(2, c.self.Generation(), "second")
	a.dateDeath(2, first, 1e18)
	require.Zero(t, a.describe(2).died)
	a.dateDeath(2, a.slotState(2), 2e18)
	require.EqualValues(t, 2e18, a.describe(2).died)
	a.dateDeath(2, a.slotState(2), 3e18)
	require.EqualValues(t, 2e18, a.describe(2).died, "the first process that marks the death dates it")
}
