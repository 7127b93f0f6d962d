//go:build linux

package arenakernel

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

func init() {
	// "few generations" makes a slot need another window after N generations.
	agentOrders["few generations"] = func(s *agent, o order, a *answer) error {
		generationsMost, windowLeast = uint32(o.N), 16
		return nil
	}
	// "cycle" joins and leaves N times.
	agentOrders["cycle"] = func(s *agent, o order, a *answer) error {
		for range o.N {
			x, err := Open(o.Arena, nil)
			if err != nil {
				return err
			}
			err = useArena(x, "used")
			a.Who = x.Who(x.self)
			if err := x.Close(); err != nil {
				return err
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// view returns an Arena for an arena that this process has not joined. It is like the Arena of a joiner
// that has no slot yet.
func view(m memory, slots int) *Arena {
	a := &Arena{membership: &membership{seg: &shm.Segment{}, watcher: noWatcher()}}
	a.memory, a.geo, a.label = m, plan(m.size, slots), "a view"
	a.current, a.gone = a.isCurrent, a.Gone
	return a
}

// peek maps the arena without joining it.
func (ta *testArena) peek(t *testing.T) *Arena {
	seg, err := shm.Open(ta.name, nil)
	require.NoError(t, err)
	t.Cleanup(func() { seg.Close() })
	return view(newMemory(seg.Bytes()), ta.opts.MaxParticipants)
}

// leaveAt changes a slot as if all its participants had left, and the last one had the given generation. The
// slot is then free, and there is nothing to clean up.
func (a *Arena) leaveAt(slot int, generation uint32) {
	a.u32(a.slot(slot) + slotReclaimed).Store(generation)
	a.forgetTouched(slot)
	a.u32(a.slot(slot) + slotState).Store(uint32(makeSlotWord(phaseFree, generation)))
}

// useUp changes a slot as if all its generations had been used.
func (a *Arena) useUp(slot int) { a.leaveAt(slot, maxGeneration) }

func (a *Arena) mustWindow(t *testing.T, slot int) window {
	w, _ := a.windowOf(slot)
	require.True(t, w.legal(), "slot %d: %v", slot, w)
	return w
}

// TestEmptyArenaBeginsAnew: no process is in an arena, and all its slots have used up their
// generations. Then as many participants as there are slots can join. This also works if the last
// participant was killed.
func TestEmptyArenaBeginsAnew(t *testing.T) {
	for _, killed := range []bool{false, true} {
		ta := newTestArena(t, 4)
		first := ta.join(t, "the first")
		a := ta.peek(t)
		for i := 2; i <= 4; i++ {
			a.useUp(i)
		}
		if killed {
			// The first participant has the second to last generation. So the participant that takes
			// over its slot gets the last generation, and the slot then needs a new window.
			a.u64(a.windowWord(1)).Store(uint64(makeWindow(1, 2, 0)))
			first.must(t, order{Do: "lock", Text: "held"})
			first.Kill(t)
		} else {
			first.close(t)
			a.useUp(1)
		}
		a.forgetTimes()
		var all []*remote
		for i := range 4 {
			v := ta.join(t, fmt.Sprint("again ", i))
			v.must(t, order{Do: "use", Text: "x"})
			require.True(t, a.mustWindow(t, v.self.Slot()).has(v.self.Generation()))
			all = append(all, v)
		}
		if killed {
			require.Equal(t, "the first", all[0].must(t, order{Do: "who", Name: first.self}).Who.Label)
			all[0].must(t, order{Do: "lock", Text: "held"})
		}
		for i := 1; i <= 4; i++ {
			w := a.mustWindow(t, i)
			require.EqualValues(t, 1, w.number(), "slot %d", i)
			require.Greater(t, w.last()-w.first(), uint32(1<<17), "slot %d", i)
		}
		all[0].alone(t, 4)
		all[0].stats(t)
		for _, v := range all {
			v.close(t)
		}
	}
}

// TestOneSlotIsInheritedForEver: in an arena with one slot, each participant is killed, and the next
// participant cleans up after it. There is no limit to the number of such participants.
func TestOneSlotIsInheritedForEver(t *testing.T) {
	ta := newTestArena(t, 1)
	const few = 6000 // so that the IDs of 256 death records leave 16 generations in a row
	a := (*Arena)(nil)
	seen := map[uint32]int{}
	for i := range proctest.Rounds(12, 200) {
		v := ta.start(t)
		v.must(t, order{Do: "few generations", N: few})
		v.open(t, ta, fmt.Sprint("round ", i))
		if a == nil {
			a = ta.peek(t)
			a.u64(a.windowWord(1)).Store(uint64(makeWindow(1, few, 0)))
		}
		v.must(t, order{Do: "lock", Text: "held"})
		v.must(t, order{Do: "use", Text: "x"})
		seen[a.mustWindow(t, 1).number()]++
		v.Kill(t)
		// The window ends after three rounds.
		if w := a.mustWindow(t, 1); a.slotState(1).generation() == w.first() {
			g := w.last() - w.heirs() - 2
			a.u32(a.slot(1) + slotReclaimed).Store(g - 1)
			a.eachObjectWord(func(p *uint32) {
				if ParticipantID(*p) == v.self {
					*p = uint32(makeParticipantID(1, g))
				}
			})
			a.u32(a.slot(1) + slotState).Store(uint32(makeSlotWord(phaseLive, g)))
		}
	}
	require.GreaterOrEqual(t, len(seen), 3, "%v", seen)
}

// eachObjectWord calls f for the words of all objects.
func (a *Arena) eachObjectWord(f func(*uint32)) {
	a.eachBlock(func(off Offset, size uint64, w blockWord) bool {
		if w.kind() == blockObject {
			for o := off; o < off+Offset(size); o += 4 {
				f(wordPtr(a.u32(o)))
			}
		}
		return true
	})
}

// TestSlotIsRenewedWhileAMemberStays: a slot is renewed again and again while a member stays in the
// arena. The member may be stopped. It keeps what it holds, and takes over what dead participants
// leave.
func TestSlotIsRenewedWhileAMemberStays(t *testing.T) {
	ta := newTestArena(t, 2)
	const few = 6000 // so that the IDs of 256 death records leave 16 generations in a row
	s := ta.start(t)
	s.must(t, order{Do: "few generations", N: few})
	s.open(t, ta, "stays")
	s.must(t, order{Do: "lock", Text: "its own"})
	a := ta.peek(t)
	a.u64(a.windowWord(2)).Store(uint64(makeWindow(1, few, 0)))
	for round := range proctest.Rounds(8, 60) {
		w := a.mustWindow(t, 2)
		a.leaveAt(2, w.last()-w.heirs()-1)
		if round%2 == 0 {
			s.Stop(t)
		}
		v := ta.start(t)
		v.must(t, order{Do: "few generations", N: few})
		v.open(t, ta, "last of its window")
		require.Equal(t, makeParticipantID(2, w.last()-w.heirs()), v.self)
		require.NotEmpty(t, v.try(t, order{Do: "lock", Text: "its own"}).Err)
		v.must(t, order{Do: "lock", Text: "passes on"})
		if round%2 == 0 {
			v.close(t)
			require.True(t, a.usedUp(2, a.slotState(2)))
		} else {
			v.Kill(t)
			pollFor(t, a, func() bool { return a.usedUp(2, a.slotState(2)) })
		}
		v = ta.start(t)
		v.must(t, order{Do: "few generations", N: few})
		v.open(t, ta, "first of its window")
		now := a.mustWindow(t, 2)
		require.Equal(t, w.number()+1, now.number())
		require.Equal(t, makeParticipantID(2, now.first()), v.self)
		if round%2 == 0 {
			s.Cont(t)
		}
		s.alone(t, 2)
		v.must(t, order{Do: "lock", Text: "passes on"})
		require.NotEmpty(t, s.try(t, order{Do: "lock", Text: "passes on"}).Err)
		v.close(t)
		s.must(t, order{Do: "use", Text: "x"})
		s.stats(t)
	}
	require.Equal(t, makeParticipantID(1, 1), s.self)
	s.close(t)
}

// TestSlotWithoutHeirsComesBack: all joiners that took over a dead slot were killed, and its window has
// no generation left. The slot can be used again as soon as another slot has a participant. If all
// slots are in this state, no process can join the arena.
func TestSlotWithoutHeirsComesBack(t *testing.T) {
	ta := newTestArena(t, 2)
	one := ta.join(t, "one")
	one.must(t, order{Do: "lock", Text: "held"})
	a := ta.peek(t)
	for _, last := range []bool{false, true} {
		two := ta.join(t, "two")
		two.must(t, order{Do: "lock", Text: "held, too"})
		one.Stop(t)
		if last {
			two.Stop(t) // so that neither participant reaps the other
			one.Kill(t)
		}
		two.Kill(t)
		stuck := func(i int) { // makes the state that is left when the last heir has been killed
			w, g := a.mustWindow(t, i), a.slotState(i).generation()
			a.u64(a.windowWord(i)).Store(uint64(makeWindow(w.first(), g, w.number())))
		}
		stuck(2)
		if last {
			stuck(1)
			late := ta.start(t).try(t, order{Do: "open", Arena: ta.name})
			require.Equal(t, []string{"no space"}, late.Is, late.Err)
			require.Contains(t, late.Err, "2 have no generation left")
			return
		}
		late := ta.start(t).try(t, order{Do: "open", Arena: ta.name})
		require.Equal(t, []string{"no space"}, late.Is, late.Err)
		one.Cont(t)
		pollFor(t, a, func() bool { return a.usedUp(2, a.slotState(2)) })
		two = ta.join(t, "two")
		require.EqualValues(t, 1, a.mustWindow(t, 2).number())
		two.must(t, order{Do: "lock", Text: "held, too"})
		two.close(t)
	}
}

// TestUsedUpSlotsThatCannotBeRenewed: if used-up slots cannot be renewed, the error of a joiner says
// why.
func TestUsedUpSlotsThatCannotBeRenewed(t *testing.T) {
	ta := newTestArena(t, 3)
	s := ta.join(t, "stays")
	a := ta.peek(t)
	a.useUp(2)
	a.useUp(3)
	refused := func(why string) {
		t.Helper()
		late := ta.start(t).try(t, order{Do: "open", Arena: ta.name})
		require.Equal(t, []string{"no space"}, late.Is, late.Err)
		require.Contains(t, late.Err, "all 3 slots for participants are taken or used up: 2 have no generation left")
		require.Contains(t, late.Err, why)
		require.Zero(t, a.u64(a.windowWord(2)).Load())
	}
	s.Stop(t)
	a.u32(a.slot(1) + slotTelling).Store(1)
	refused("they could not be renewed now: 1.1 is in the middle of ending a wait of another, or is stopped there")
	a.u32(a.slot(1) + slotTelling).Store(0)
	for _, slot := range []int{2, 3} {
		a.u64(a.touchedWord(slot, 0)).Store(1)
		a.u32(a.slot(slot) + slotState).Store(uint32(makeSlotWord(phaseFree, maxGeneration)))
	}
	refused("in 2 of them nobody could take back what dead participants left")
	a.useUp(2)
	a.useUp(3)
	v := ta.join(t, "beside one that is stopped")
	require.Equal(t, makeParticipantID(2, 1), v.self)
	s.Cont(t)
	s.alone(t, 2)
}

// TestWindowHasNoNamedGeneration: no word of the arena contains an ID that consists of the slot and of
// a generation of its new window. This applies to owner words, block words, wait nodes, death records,
// and all words that look like one of these.
func TestWindowHasNoNamedGeneration(t *testing.T) {
	ta := newTestArena(t, 2)
	v := ta.join(t, "first")
	a := ta.peek(t)
	v.close(t)
	a.leaveAt(2, 69999)
	s := ta.join(t, "stays")
	v = ta.join(t, "dies")
	require.Equal(t, makeParticipantID(2, 70000), v.self)
	v.must(t, order{Do: "lock", Text: "mine"})
	o := findLock(t, a, "mine")
	a.forgetTimes()
	a.u32(o.Body + 16).Store(uint32(makeParticipantID(2, 130000))) // the kind of o does not repair this word
	a.u32(o.Body + 20).Store(uint32(makeParticipantID(2, 131000)) << 3)
	v.Kill(t)
	pollFor(t, a, func() bool { return a.slotState(2).phase() == phaseFree })
	a.useUp(2)
	s.close(t)

	s = ta.join(t, "alone")
	a.requireWindow(t, 2, makeWindow(131001, maxGeneration-1, 1))
	s.close(t)
	a.leaveAt(2, maxGeneration-1)
	a.u32(o.Body + 20).Store(0)
	s = ta.join(t, "alone")
	a.requireWindow(t, 2, makeWindow(130001, maxGeneration-2, 2))
	s.close(t)
	// There are death records of the generations 70000 and 130000.
	a.leaveAt(2, 130001)
	a.u64(a.windowWord(2)).Store(uint64(makeWindow(130001, 130001, 2)))
	ta.join(t, "alone").close(t)
	a.requireWindow(t, 2, makeWindow(130002, maxGeneration, 3))
	a.leaveAt(2, 200001)
	a.u64(a.windowWord(2)).Store(uint64(makeWindow(200001, 200001, 3)))
	ta.join(t, "alone").close(t)
	a.requireWindow(t, 2, makeWindow(130001, 200000, 4))
	a.leaveAt(2, 195000)
	a.u64(a.windowWord(2)).Store(uint64(makeWindow(195000, 195000, 4)))
	a.u32(o.Body + 20).Store(uint32(makeParticipantID(2, 193000)))
	a.u32(o.Body + 24).Store(uint32(makeParticipantID(2, 215000)))
	ta.join(t, "alone").close(t)
	a.requireWindow(t, 2, makeWindow(1, 69999, 5)) // generation 70000 has a death record
}

func findLock(t *testing.T, a *Arena, name string) (o Object) {
	a.eachBlock(func(off Offset, _ uint64, w blockWord) bool {
		if h, err := a.headerAt(off); w.kind() == blockObject && err == nil && h.Name == name {
			o = h.Object
		}
		return true
	})
	require.NotZero(t, o.Offset)
	return o
}

// TestTooManyBytesLookLikeIDs: so many bytes look like IDs of a slot that too few generations are left
// for a window. The error says what to do.
func TestTooManyBytesLookLikeIDs(t *testing.T) {
	ta := newTestArena(t, 1)
	v, err := Create(ta.name, &ta.opts)
	require.NoError(t, err)
	o, _, err := v.OpenObject(ObjectSpec{Name: "x", Kind: testLockKind, Version: 1, Size: 1 << 16})
	require.NoError(t, err)
	require.NoError(t, v.Close())
	a := ta.peek(t)
	for k, g := Offset(0), windowLeast-1; g <= maxGeneration; k, g = k+4, g+windowLeast-1 {
		a.u32(o.Body + k).Store(uint32(makeParticipantID(1, g)))
	}
	a.useUp(1)
	late := ta.start(t).try(t, order{Do: "open", Arena: ta.name})
	require.Equal(t, []string{"no space"}, late.Is, late.Err)
	require.Contains(t, late.Err, "too many bytes that may be IDs of 1 of them; delete objects")
}

// TestManyNamesLeaveAShortWindow checks that a slot gets a short but usable window if thousands of its IDs stay
// in the words of the arena.
func TestManyNamesLeaveAShortWindow(t *testing.T) {
	ta := newTestArena(t, 1)
	v, err := Create(ta.name, &ta.opts)
	require.NoError(t, err)
	const names = 20_000
	o, _, err := v.OpenObject(ObjectSpec{Name: "x", Kind: testLockKind, Version: 1, Size: 4 * names})
	require.NoError(t, err)
	require.NoError(t, v.Close())
	a := ta.peek(t)
	r := rand.New(rand.NewPCG(5, 6))
	for k := range Offset(names) {
		a.u32(o.Body + 4*k).Store(uint32(makeParticipantID(1, 1+r.Uint32()%maxGeneration)))
	}
	a.useUp(1)
	ta.join(t, "the first of it").close(t)
	w := a.mustWindow(t, 1)
	require.EqualValues(t, 1, w.number())
	n := w.last() - w.first() + 1
	t.Logf("%d generations", n)
	require.Less(t, n, uint32(512))
	require.Greater(t, n-w.heirs(), uint32(16))
}

// TestSlotWithLeftoversIsNotRenewed: a reaper does not know the kind of some objects, and so has left
// something in them. The slot of the dead participant is not renewed.
func TestSlotWithLeftoversIsNotRenewed(t *testing.T) {
	ta := newTestArena(t, 2)
	v := ta.join(t, "first")
	a := ta.peek(t)
	v.close(t)
	a.useUp(2)
	a.u64(a.touchedWord(2, 5)).Store(1)
	v = ta.join(t, "alone")
	require.Zero(t, a.u64(a.windowWord(2)).Load())
	v.close(t)
	a.useUp(1)
	a.u64(a.touchedWord(1, 5)).Store(1)
	late := ta.start(t).try(t, order{Do: "open", Arena: ta.name})
	require.Contains(t, late.Err, "in 2 of them nobody could take back what dead participants left")
}

// TestHostileWindows: a peer may write any bytes into a window. A joiner then gets a valid ID, or an
// error.
func TestHostileWindows(t *testing.T) {
	a := newMemfdArena(t, 4)
	r := rand.New(rand.NewPCG(1, 2))
	legal := 0
	for range 1000 {
		raw := r.Uint64() >> (r.Uint32() % 64) << (r.Uint32() % 64)
		a.u64(a.windowWord(3)).Store(raw)
		g := r.Uint32() & maxGeneration
		a.u32(a.slot(3) + slotReclaimed).Store(r.Uint32())
		got, _ := a.nextGeneration(3, makeSlotWord(phaseFree, g), r.Uint32()%2 == 0)
		if got != 0 {
			legal++
			require.NotEqual(t, g, got, "window %#x", raw)
			require.LessOrEqual(t, got, uint32(maxGeneration))
		}
	}
	require.NotZero(t, legal)
	a.u64(a.windowWord(3)).Store(uint64(makeWindow(7, 3, 1)))
	i := &Inspector{a: a}
	require.Len(t, i.checkSlots(), 1)
	require.ErrorContains(t, i.checkSlots()[0], "slot 3 has the impossible window 7..3, number 1")
	a.u64(a.windowWord(3)).Store(0)
}

// TestRenewalSeesWhatHappened: a joiner is stopped after its search, before it records a window.
// Meanwhile other participants join, leave, die, and act on IDs of dead participants. The joiner
// records the window only if the result of its search is still valid.
func TestRenewalSeesWhatHappened(t *testing.T) {
	j := view(newMemory(make([]byte, 2<<20)), 3)
	j.useUp(3)
	searched := func(f func()) bool {
		renewSearched = f
		defer func() { renewSearched = func() {} }()
		return j.renewSlots()
	}
	state := func(p phase, g uint32) { j.u32(j.slot(2) + slotState).Store(uint32(makeSlotWord(p, g))) }
	// Another joiner has renewed the slot.
	require.True(t, searched(func() { j.u64(j.windowWord(3)).Store(uint64(makeWindow(1, maxGeneration, 1))) }))
	require.Equal(t, makeWindow(1, maxGeneration, 1), j.mustWindow(t, 3))
	// A participant was dead before the search, or died meanwhile.
	state(phaseDead, 9)
	require.False(t, searched(func() {}))
	require.EqualValues(t, 1, j.mustWindow(t, 3).number())
	state(phaseLive, 10)
	require.True(t, searched(func() { state(phaseDead, 10) }))
	require.EqualValues(t, 1, j.mustWindow(t, 3).number())
	// A thread has published an ID in an act word.
	state(phaseLive, 11)
	require.True(t, searched(func() { j.actWord(2, 5).Store(uint32(makeParticipantID(3, 1000))) }))
	require.Equal(t, makeWindow(1001, maxGeneration-1, 2), j.mustWindow(t, 3))
	// Another joiner has renewed the slot, and a third joiner has taken the slot and left.
	j.leaveAt(3, maxGeneration-1)
	require.True(t, searched(func() { j.leaveAt(3, 5000) }))
	require.EqualValues(t, 2, j.mustWindow(t, 3).number())
	require.False(t, searched(func() {}), "the slot is not used up any more")
}

// TestHostileActWords: a peer has written arbitrary bytes into act words. No participant waits because
// of them.
func TestHostileActWords(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b := p.join(1), p.join(2)
	for k := range actWords {
		a.actWord(1, k).Store(^uint32(0))
	}
	p.kill(b.self)
	word := a.u32(a.slot(4) + slotReaper)
	word.Store(uint32(b.self))
	require.True(t, TakeFromDead(a, b.self, word, uint32(b.self), 7))
	require.EqualValues(t, 7, word.Load())
	a.forgetActs()
	for k := range actWords {
		require.Zero(t, a.actWord(1, k).Load())
	}
}

// TestTakeFrom checks that TakeFromDead changes a word only if the participant is dead and the word has the
// expected value, and that TakeFromGone also requires that the participant is gone.
func TestTakeFrom(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b := p.join(1), p.join(2)
	word := a.u64(a.slot(4) + slotDied)
	old := uint64(b.self) << 32
	word.Store(old)
	require.False(t, TakeFromDead(a, b.self, word, old, 1), "the participant is current")
	p.kill(b.self)
	require.False(t, TakeFromDead(a, b.self, word, old+1, 1), "the word has another value")
	a.gone = func(ParticipantID) bool { return false }
	require.False(t, TakeFromGone(a, b.self, word, old, 1), "the participant is not gone")
	require.Equal(t, old, word.Load())
	require.Zero(t, a.actWord(1, 0).Load())
	require.True(t, TakeFromDead(a, b.self, word, old, 1))
	word.Store(uint64(a.self))
	require.True(t, TakeFromGone(a, a.self, word, uint64(a.self), 2), "it leaves")
}

// TestTakeSeesAnotherWindow: a joiner without a byte lock is stopped before it takes a slot. When it
// goes on, the slot has the same state, but in another window. The joiner must not take the slot with a
// generation of the old window.
func TestTakeSeesAnotherWindow(t *testing.T) {
	j := view(newMemory(make([]byte, 2<<20)), 3)
	j.leaveAt(3, 50)
	next, raw := j.nextGeneration(3, j.slotState(3), false)
	require.EqualValues(t, 51, next)
	j.u64(j.windowWord(3)).Store(uint64(makeWindow(40, 49, 1)))
	require.False(t, j.take(3, makeSlotWord(phaseFree, 50), next, raw))
	require.Equal(t, makeSlotWord(phaseFree, 50), j.slotState(3), "the slot must not change")
	require.True(t, j.cleaned(3, j.slotState(3)))
	next, raw = j.nextGeneration(3, j.slotState(3), false)
	require.EqualValues(t, 40, next)
	require.True(t, j.take(3, j.slotState(3), next, raw))
	require.Equal(t, makeSlotWord(phaseJoining, 40), j.slotState(3))
	require.EqualValues(t, 39, j.u32(j.slot(3)+slotReclaimed).Load(), "participants of earlier windows count as reaped")
}

// TestLateJoinerLeavesTheSlotClean: a joiner is about to enter a new window of a slot, and is stopped
// until other joiners have used up that window. It then leaves the slot unchanged.
func TestLateJoinerLeavesTheSlotClean(t *testing.T) {
	j := view(newMemory(make([]byte, 2<<20)), 3)
	j.leaveAt(3, 50)
	w := j.slotState(3)
	j.u64(j.windowWord(3)).Store(uint64(makeWindow(60, 90, 1)))
	first, raw := j.nextGeneration(3, w, false)
	require.EqualValues(t, 60, first)
	j.leaveAt(3, 90)
	late, _ := j.nextGeneration(3, w, false)
	require.Zero(t, late, "the window is not new any more")
	require.False(t, j.take(3, w, first, raw))
	require.True(t, j.cleaned(3, j.slotState(3)))
	require.True(t, j.usedUp(3, j.slotState(3)))

	// A joiner has died before its ID was in the state word. The next joiner can take the slot.
	j.leaveAt(3, 50)
	j.u32(j.slot(3) + slotReclaimed).Store(59)
	first, raw = j.nextGeneration(3, j.slotState(3), false)
	require.EqualValues(t, 60, first)
	require.True(t, j.take(3, j.slotState(3), first, raw))

	// A joiner does not enter a window while something is left of an earlier participant.
	j.leaveAt(3, 50)
	j.u64(j.touchedWord(3, 2)).Store(1)
	first, _ = j.nextGeneration(3, j.slotState(3), false)
	require.Zero(t, first)
	j.leaveAt(3, 50)
	j.u32(j.slot(3) + slotReclaimed).Store(49)
	first, _ = j.nextGeneration(3, j.slotState(3), false)
	require.Zero(t, first)
}

// TestTurnAfterADeathIsOfItsWindow: a watcher has seen a death in an earlier window of a slot. For a death in a later
// window, the delay of the watcher begins again.
func TestTurnAfterADeathIsOfItsWindow(t *testing.T) {
	seen, w := notices{}, makeSlotWord(phaseDead, 7)
	require.Positive(t, seen.left(3, w, 1, 1e12))
	seen[3] = notice{of: w, when: 1, window: 1}
	require.Zero(t, seen.left(3, w, 1, 1))
	require.Positive(t, seen.left(3, w, 2, 1e12))
}

// TestFewJoinersSearchInVain checks how often joiners search for another window for a slot that cannot be
// renewed. While other slots are free, only one in 64 joins searches. A joiner that would have to wait for
// another participant searches only once.
func TestFewJoinersSearchInVain(t *testing.T) {
	j := view(newMemory(make([]byte, 2<<20)), 4)
	searched, least := 0, windowLeast
	renewSearched, windowLeast = func() { searched++ }, maxGeneration+1
	defer func() { renewSearched, windowLeast = func() {}, least }()
	j.mySlot = 1
	j.useUp(3)
	joins := func(n uint32) int {
		searched = 0
		for g := uint32(1); g <= n; g++ {
			j.self = makeParticipantID(1, g)
			j.renewOthers()
		}
		return searched
	}
	require.Equal(t, 2, joins(128))
	for _, slot := range []int{2, 4} {
		j.u32(j.slot(slot) + slotState).Store(uint32(makeSlotWord(phaseLive, 1)))
	}
	require.Equal(t, 3, joins(3), "no other slot is free")
	windowLeast = least
	renewSearched = func() {
		searched++
		j.u32(j.slot(2) + slotState).Store(uint32(makeSlotWord(phaseDead, 1)))
	}
	require.Equal(t, 1, joins(1))
	require.Contains(t, j.postponed, "has died")
	require.Zero(t, joins(3), "no joiner searches while the participant of a slot is dead")

	j = view(newMemory(make([]byte, 4<<20)), 2*renewMost)
	j.mySlot, j.self = 1, makeParticipantID(1, renewEvery)
	j.useUp(3)
	j.u32(j.slot(2) + slotTelling).Store(1)
	asked := 0
	j.current = func(ParticipantID) bool { asked++; return true }
	j.renewOthers()
	require.Contains(t, j.postponed, "in the middle of ending a wait")
	require.Equal(t, toldYields+1, asked, "the joiner waited a second time")
}

func TestGenerationGaps(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 1, 2, 10, 1000, 100000, 5000000} {
		var s generations
		var has [maxGeneration + 1]bool
		for range n {
			g := r.Uint32() & maxGeneration
			s.add(g)
			has[g] = true
		}
		longest, run := 0, 0
		for _, in := range has[1:] {
			run++
			if in {
				run = 0
			}
			longest = max(longest, run)
		}
		first, last := s.longestGap()
		require.Equal(t, longest > 0, first != 0, "%d", n)
		if first == 0 {
			continue
		}
		require.EqualValues(t, longest, last-first+1)
		for g := first; g <= last; g++ {
			require.False(t, has[g], "generation %d is in the set", g)
		}
	}
}

// TestDeathRecordsLeaveAWindow: in spite of the death records, a slot can get another window. It does
// not matter which slots the deaths were in.
func TestDeathRecordsLeaveAWindow(t *testing.T) {
	var s generations
	for k := uint32(1); k <= deathRecordCount; k++ {
		s.add(k * maxGeneration / (deathRecordCount + 1))
	}
	s.add(1) // the present generation of the slot
	first, last := s.longestGap()
	require.GreaterOrEqual(t, last-first+1, uint32(512))
}

func TestWindowWords(t *testing.T) {
	for _, w := range []window{makeWindow(1, maxGeneration, 7), makeWindow(3, 3, 1<<28-1)} {
		require.True(t, w.legal())
		require.Equal(t, w, makeWindow(w.first(), w.last(), w.number()))
		require.True(t, w.has(w.first()) && w.has(w.last()))
		require.False(t, w.has(w.last()+1) || w.has(w.first()-1))
	}
	for _, w := range []window{makeWindow(0, 5, 1), makeWindow(6, 5, 1)} {
		require.False(t, w.legal(), "%v", w)
	}
	require.Zero(t, makeWindow(1, 5, 1<<28-1+1).number())
}

// TestGenerationsComeAgain: slots with few generations are renewed again and again, while participants
// are killed, are stopped, and leave. No participant takes what another participant has.
func TestGenerationsComeAgain(t *testing.T) {
	ta := newTestArena(t, 3)
	const few = 6000 // so that the IDs of 256 death records leave 16 generations in a row
	c := ta.start(t)
	c.must(t, order{Do: "few generations", N: few})
	c.open(t, ta, "creator")
	a := ta.peek(t)
	c.close(t)
	r := rand.New(rand.NewPCG(uint64(few), 5))
	for round := range proctest.Rounds(6, 60) {
		for i := 1; i <= 3; i++ { // put the slot near the end of its window
			w := a.mustWindow(t, i)
			if a.slotState(i).phase() == phaseFree && w.has(a.slotState(i).generation()) {
				a.leaveAt(i, min(w.last(), few)-w.heirs()-r.Uint32()%3)
				if w.number() == 0 {
					a.u64(a.windowWord(i)).Store(uint64(makeWindow(1, few, 0)))
				}
			}
		}
		c.must(t, order{Do: "cycle", N: 30, Arena: ta.name})
		// Wait until all slots are free. Otherwise the dead participant of a slot could be reaped after participant
		// one has joined, and the slot could be used up when participant two joins.
		pollFor(t, a, func() bool {
			c.must(t, order{Do: "cycle", N: 1, Arena: ta.name})
			return a.slotState(1).phase() == phaseFree && a.slotState(2).phase() == phaseFree && a.slotState(3).phase() == phaseFree
		})
		one, two := ta.start(t), ta.start(t)
		for k, v := range []*remote{one, two} {
			v.must(t, order{Do: "few generations", N: few})
			v.open(t, ta, fmt.Sprint("round ", round, " ", k))
		}
		one.must(t, order{Do: "lock", Text: "held"})
		require.NotEmpty(t, two.try(t, order{Do: "lock", Text: "held"}).Err)
		two.must(t, order{Do: "use", Text: "used"})
		switch round % 3 {
		case 0:
			one.close(t)
			two.must(t, order{Do: "lock", Text: "held"})
			two.close(t)
		case 1:
			one.Stop(t)
			two.Kill(t)
			one.Cont(t)
			one.alone(t, 1)
			one.must(t, order{Do: "use", Text: "used"})
			one.stats(t)
			one.close(t)
		default:
			one.Kill(t)
			two.alone(t, 1)
			two.must(t, order{Do: "lock", Text: "held"})
			two.Kill(t)
		}
	}
	renewed := uint32(0)
	for i := 1; i <= 3; i++ {
		w := a.mustWindow(t, i)
		require.LessOrEqual(t, w.last(), uint32(few))
		renewed += w.number()
	}
	t.Logf("slots were renewed %d times", renewed)
	require.GreaterOrEqual(t, renewed, uint32(3))
	v := ta.join(t, "last")
	v.alone(t, 1)
	v.stats(t)
}

// BenchmarkSearchIDs measures the search for the IDs of four slots in an arena with 100,000 objects.
func BenchmarkSearchIDs(b *testing.B) {
	ta := newTestArena(b, 4)
	ta.opts.Size = 128 << 20
	a, err := Create(ta.name, &ta.opts)
	require.NoError(b, err)
	defer a.Close()
	const objects = 100_000
	for range objects {
		o, _, err := a.OpenObject(ObjectSpec{Kind: testLockKind, Size: 192})
		require.NoError(b, err)
		a.CloseObject(o)
	}
	for b.Loop() {
		var s idSearch
		for slot := 1; slot <= 4; slot++ {
			s.add(slot, 1)
		}
		s.run(a)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/objects, "ns/object")
}
