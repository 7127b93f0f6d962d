//go:build linux

package arenakernel

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

func TestJoinAndLeave(t *testing.T) {
	ta := newTestArena(t, 4)
	before := time.Now()
	one := ta.join(t, "one")
	two := ta.join(t, "two")
	require.Equal(t, makeParticipantID(1, 1), one.self)
	require.Equal(t, makeParticipantID(2, 1), two.self)
	for _, r := range []*remote{one, two} {
		people := r.must(t, order{Do: "identified"}).People
		require.Equal(t, []string{"one", "two"}, labels(people))
		for i, p := range people {
			require.Equal(t, i+1, p.Slot)
			require.EqualValues(t, 1, p.Generation)
			require.Equal(t, []*remote{one, two}[i].Pid(), p.PID)
			require.Equal(t, p.Name() == r.self, p.Self)
			require.Equal(t, "live", p.State)
			require.Equal(t, "robust", p.Notice)
			require.Equal(t, os.Geteuid(), p.UID)
			require.WithinRange(t, p.Joined, before, time.Now())
			require.True(t, p.Died.IsZero())
			start, err := startTimeOf(fmt.Sprint(p.PID))
			require.NoError(t, err)
			require.Equal(t, start, p.StartTime)
			self, err := selfIdentity()
			require.NoError(t, err)
			require.Equal(t, self.pidNS, p.PIDNS)
			require.Equal(t, self.bootID, p.BootID)
			require.NotEqual(t, [16]byte{}, p.BootID)
		}
		r.must(t, order{Do: "use", Text: "x"})
	}
	two.close(t)
	require.Equal(t, []string{"one"}, labels(one.alone(t, 1)))
	who := one.must(t, order{Do: "who", Name: two.self}).Who
	require.NotNil(t, who)
	require.Equal(t, "two", who.Label)
	require.Equal(t, two.Pid(), who.PID)
	// The process still exists, and joins again as another participant.
	two.open(t, ta, "two again")
	require.Equal(t, makeParticipantID(2, 2), two.self)
	require.Equal(t, []string{"one", "two again"}, labels(one.alone(t, 2)))
	require.Equal(t, "two", one.must(t, order{Do: "who", Name: makeParticipantID(2, 1)}).Who.Label)
	one.close(t)
	two.close(t)

	// After the last participant has left, the next joiner finds the same arena.
	three := ta.join(t, "three")
	require.Equal(t, makeParticipantID(1, 2), three.self)
	require.Equal(t, []string{"three"}, labels(three.participants(t)))
}

func TestLabels(t *testing.T) {
	ta := newTestArena(t, 4)
	long := ""
	for len(long) < 80 {
		long += "0123456789"
	}
	ta.join(t, long)
	empty := ta.join(t, "")
	require.Equal(t, []string{long[:labelBytes], filepath.Base(os.Args[0])}, labels(empty.participants(t)))
}

// TestDeathsAreToldOnce: every participant is told of each death once. No participant is told of a leave.
func TestDeathsAreToldOnce(t *testing.T) {
	ta := newTestArena(t, 8)
	survivors := []*remote{ta.join(t, "s1"), ta.join(t, "s2"), ta.join(t, "s3")}
	for round := range 3 {
		victim, leaver := ta.join(t, fmt.Sprint("victim ", round)), ta.join(t, "leaver")
		leaver.close(t)
		victim.Kill(t)
		for _, s := range survivors {
			dead := s.deaths(t, round+1)
			require.Len(t, dead, round+1)
			for _, d := range dead {
				require.NotEqual(t, "leaver", d.Label)
			}
			d := dead[slices.IndexFunc(dead, func(d death) bool { return d.Label == fmt.Sprint("victim ", round) })]
			require.Equal(t, victim.Pid(), d.PID)
			require.Equal(t, victim.self, d.Name())
			require.Equal(t, "dead", d.State)
			require.False(t, d.Died.IsZero())
		}
	}
	for _, s := range survivors {
		s.alone(t, 3)
		s.must(t, order{Do: "use", Text: "x"})
		require.Len(t, s.deaths(t, 3), 3)
	}
}

// TestManyDeathsAreToldOnce checks that every survivor is told of each death once if several participants die
// at the same time, many times in a row.
func TestManyDeathsAreToldOnce(t *testing.T) {
	rounds, each := 8, 4
	if testing.Short() {
		rounds = 2
	}
	ta := newTestArena(t, 8)
	survivors := []*remote{ta.join(t, "s1"), ta.join(t, "s2"), ta.join(t, "s3")}
	var want []string
	for round := range rounds {
		var victims []*remote
		for i := range each {
			victims = append(victims, ta.join(t, fmt.Sprintf("victim %02d.%d", round, i)))
			want = append(want, fmt.Sprintf("victim %02d.%d", round, i))
		}
		for _, v := range victims {
			v.Signal(t, unix.SIGKILL)
		}
		for _, s := range survivors {
			require.Equal(t, want, labelsOfDead(s.deaths(t, len(want))))
			s.alone(t, len(survivors))
		}
	}
}

// TestSecondOpenIsTheSame: a second Open in the same process uses the same membership, whatever
// name or function it uses.
func TestSecondOpenIsTheSame(t *testing.T) {
	ta := newTestArena(t, 4)
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	b, err := Open(ta.name, nil)
	require.NoError(t, err)
	require.Same(t, a.membership, b.membership)
	seg, err := shm.OpenAt("/dev/../dev/shm/"+ta.name, nil)
	require.NoError(t, err)
	c, err := FromSegment(seg, nil)
	require.NoError(t, err)
	require.Same(t, a.membership, c.membership)
	d, err := Attach(ta.name, nil)
	require.NoError(t, err)
	require.Same(t, a.membership, d.membership)
	_, err = Create(ta.name, nil)
	require.ErrorIs(t, err, os.ErrExist)

	for _, x := range []*Arena{b, c, d} {
		require.NoError(t, x.Close())
		require.Equal(t, 1, len(slices.Collect(a.Participants())))
		require.NoError(t, useArena(a, "x"))
	}
	require.NoError(t, a.Close())
	require.ErrorIs(t, a.Close(), shmsync.ErrClosed)

	e, err := Open(ta.name, nil)
	require.NoError(t, err)
	require.NotSame(t, a.membership, e.membership)
	require.Equal(t, makeParticipantID(1, 2), e.self)
	require.NoError(t, e.Close())
}

func TestMemfdArena(t *testing.T) {
	seg, err := shm.CreateMemfd("jobs", 2<<20, func(s *shm.Segment) error { return Format(s, nil) }, nil)
	require.NoError(t, err)
	a, err := FromSegment(seg, nil)
	require.NoError(t, err)
	// Another descriptor of the same open file description does no harm, because the byte lock
	// belongs to a separate description.
	dup, err := shm.FromFile(seg.File(), nil)
	require.NoError(t, err)
	b, err := FromSegment(dup, nil)
	require.NoError(t, err)
	require.Same(t, a.membership, b.membership)
	require.NoError(t, b.Close())
	require.NoError(t, useArena(a, "x"))
	require.NoError(t, a.Close())
}

// TestInheritedMemfd: the agents inherit descriptors of the same open file description. A lock on
// this description would belong to all of them, so each agent must open a description of its own.
func TestInheritedMemfd(t *testing.T) {
	seg, err := shm.CreateMemfd("jobs", 2<<20, func(s *shm.Segment) error { return Format(s, &Options{MaxParticipants: 4}) }, nil)
	require.NoError(t, err)
	defer seg.Close()
	ta := &testArena{name: inherited}
	for _, missing := range []string{"", "robust"} {
		var members []*remote
		for i := range 4 {
			members = append(members, ta.join(t, fmt.Sprint("m", i), proctest.Files(seg.File()), without(missing)))
		}
		members[0].must(t, order{Do: "lock", Text: "held"})
		members[1].alone(t, 4)
		members[0].Kill(t)
		for _, m := range members[1:] {
			require.Equal(t, "m0", m.deaths(t, 1)[0].Label)
			require.Equal(t, []string{"m1", "m2", "m3"}, labels(m.alone(t, 3)))
		}
		members[1].must(t, order{Do: "lock", Text: "held"})
		for _, m := range members[1:] {
			m.Kill(t)
		}
		n := ta.join(t, "newcomer", proctest.Files(seg.File()), without(missing))
		require.Equal(t, []string{"newcomer"}, labels(n.alone(t, 1)))
		n.must(t, order{Do: "lock", Text: "held"})
		n.must(t, order{Do: "clean"})
		n.close(t)
	}
}

func TestSlotsAreTaken(t *testing.T) {
	ta := newTestArena(t, 3)
	var members []*remote
	for i := range 3 {
		members = append(members, ta.join(t, fmt.Sprint(i)))
	}
	late := ta.start(t)
	for range 3 {
		a := late.try(t, order{Do: "open", Arena: ta.name, Opts: &ta.opts})
		require.Equal(t, []string{"no space"}, a.Is, a.Err)
		require.Contains(t, a.Err, ta.path())
		require.Contains(t, a.Err, "all 3 slots")
	}
	for _, m := range members {
		m.must(t, order{Do: "use", Text: "x"})
	}
	// A process that joins just after a death finds the slot free.
	members[1].Kill(t)
	late.open(t, ta, "late")
	require.Equal(t, makeParticipantID(2, 2), late.self)
	members[0].alone(t, 3)
	require.Equal(t, []string{"0", "2", "late"}, labels(late.participants(t)))
	dead := members[0].deaths(t, 1)
	require.Equal(t, members[1].self, dead[0].Name())
	require.Equal(t, "1", dead[0].Label)
	require.Equal(t, members[1].Pid(), dead[0].PID)
	// A leave frees the slot, too.
	members[2].close(t)
	next := ta.join(t, "next")
	require.Equal(t, makeParticipantID(3, 2), next.self)
}

// TestRestartInAFullArena: in a full arena, a participant is killed and another one joins at once,
// many times.
func TestRestartInAFullArena(t *testing.T) {
	ta := newTestArena(t, 2)
	watcher, worker := ta.join(t, "watcher"), ta.join(t, "worker")
	rounds := proctest.Rounds(3, 10)
	for i := range rounds {
		worker.Kill(t)
		worker = ta.join(t, "worker")
		require.Equal(t, makeParticipantID(2, uint32(i+2)), worker.self)
	}
	require.Len(t, watcher.deaths(t, rounds), rounds)
	watcher.alone(t, 2)
}

// TestDeathRecords: the death records still describe the dead participants after others have taken
// their slots.
func TestDeathRecords(t *testing.T) {
	ta := newTestArena(t, 4)
	s := ta.join(t, "survivor")
	var gone []*remote
	for i := range 4 {
		v := ta.join(t, fmt.Sprint("victim ", i))
		gone = append(gone, v)
		v.Kill(t)
		s.deaths(t, i+1)
		s.alone(t, 1)
	}
	last := ta.join(t, "the last one")
	require.Equal(t, makeParticipantID(2, 5), last.self)
	for i, v := range gone {
		require.Equal(t, makeParticipantID(2, uint32(i+1)), v.self)
		who := s.must(t, order{Do: "who", Name: v.self}).Who
		require.NotNil(t, who, "%v", v.self)
		require.Equal(t, fmt.Sprint("victim ", i), who.Label)
		require.Equal(t, v.Pid(), who.PID)
		require.Equal(t, v.self, makeParticipantID(who.Slot, who.Generation))
		require.False(t, who.Died.IsZero())
		require.EqualValues(t, 1, s.must(t, order{Do: "dead", Name: v.self}).N)
	}
	require.Nil(t, s.must(t, order{Do: "who", Name: makeParticipantID(3, 1)}).Who)
	require.Nil(t, s.must(t, order{Do: "who", Name: makeParticipantID(2000, 1)}).Who)
	require.Zero(t, s.must(t, order{Do: "dead", Name: last.self}).N)
}

// pollFor waits until done returns true. If that takes too long, the test fails with a dump of the
// words of the arena.
func pollFor(t *testing.T, a *Arena, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(4 * bound()); !done(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within %v\n%s", 4*bound(), dumpWords(a.label))
		}
	}
}

// TestComeAndGo: a process joins and leaves many times, first alone and then while another process
// is in the arena.
func TestComeAndGo(t *testing.T) {
	rounds := proctest.Rounds(50, 400)
	ta := newTestArena(t, 3)
	for i := range rounds {
		if i == rounds/2 {
			ta.join(t, "another")
		}
		a, err := Open(ta.name, &ta.opts)
		require.NoError(t, err)
		if i%3 == 0 {
			require.NoError(t, useArena(a, "x"))
		}
		require.NoError(t, a.Close())
	}
}

// TestLeavingWakes: a process that leaves wakes waiters as if it had died, because it may have
// received a wake that it did not pass on.
func TestLeavingWakes(t *testing.T) {
	ta := newTestArena(t, 4)
	s, v := ta.join(t, "survivor"), ta.join(t, "leaver")
	v.must(t, order{Do: "lock", Text: "held"})
	v.close(t)
	require.NotZero(t, s.must(t, order{Do: "woken", Text: "held"}).N)
}

func init() {
	// "tell" ends this process while it is about to push a wait node on the ready stack of the
	// node's owner, which is the process itself.
	agentOrders["tell"] = func(s *agent, o order, a *answer) error {
		off, err := s.arena.ClaimNode()
		if err != nil {
			return err
		}
		s.arena.beginTell()
		s.arena.node(off).swapState(NodeIdle, NodeResolved)
		return nil
	}
}

// TestSuccessorHasNothingToTell: the slot counts the pushes on ready stacks that its participant
// has begun. The count of a dead participant must not count for the next participant in the slot.
func TestSuccessorHasNothingToTell(t *testing.T) {
	ta := newTestArena(t, 1)
	m := ta.join(t, "dead")
	m.must(t, order{Do: "tell"})
	m.Kill(t)
	require.Zero(t, ta.join(t, "successor").stats(t).Nodes)
}

// TestLeavesDisplaceNoDeaths: participants that join and leave do not overwrite death records that
// a stopped process has not read yet.
func TestLeavesDisplaceNoDeaths(t *testing.T) {
	ta := newTestArena(t, 8)
	s := ta.join(t, "observer")
	s.Stop(t)
	a, err := Open(ta.name, &ta.opts) // so that there is a participant that reaps
	require.NoError(t, err)
	defer a.Close()
	var want []string
	for i := range 3 {
		v := ta.join(t, fmt.Sprint("victim ", i))
		want = append(want, fmt.Sprint("victim ", i))
		v.Kill(t)
		pollFor(t, a, func() bool { return a.slotState(v.self.Slot()).phase() == phaseFree })
	}
	leaver := ta.start(t)
	leaver.must(t, order{Do: "come and go", Arena: ta.name, Opts: &ta.opts, N: deathRecordCount + 1})
	s.Cont(t)
	dead := s.deaths(t, len(want))
	require.Equal(t, want, labelsOfDead(dead))
	for _, d := range dead {
		require.Zero(t, d.Missed)
	}
}

func init() {
	// "come and go" joins and leaves N times.
	agentOrders["come and go"] = func(s *agent, o order, a *answer) error {
		for range o.N {
			m, err := Open(o.Arena, o.Opts)
			if err != nil {
				return err
			}
			if err := m.Close(); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestJoinerWithoutByteIsGivenUp: a joiner without a byte lock dies before it is live. It leaves
// nothing that the kernel marks or releases. Other participants take its slot back after a timeout,
// and not earlier.
func TestJoinerWithoutByteIsGivenUp(t *testing.T) {
	a := newMemfdArena(t, 4)
	joining := makeSlotWord(phaseJoining, 5)
	a.u32(a.slot(3) + slotState).Store(uint32(joining))
	require.False(t, a.surveyDead(3, joining), "nothing tells")
	doorbell := a.u32(a.slot(a.mySlot) + slotWatchDoorbell)
	look := func(age int64) {
		seen := notices{3: {of: joining, when: shmsync.Monotonic() - age}}
		a.watchEntries(wordPtr(doorbell), doorbell.Load(), []int{3}, seen, map[int]slotWord{})
	}
	look(joinTimeout / 2)
	require.Equal(t, joining, a.slotState(3))
	look(joinTimeout + 1)
	require.NotEqual(t, joining, a.slotState(3))
	// If the joiner lives in spite of the timeout, its slot can no longer change to phaseLive.
	require.False(t, a.casSlot(3, joining, joining.with(phaseLive)))
}

// TestJoinerHasItsOwnTime checks that a joiner without a byte lock has the full time to become live, even if an
// earlier joiner had the same generation. The earlier joiner has given the slot of a dead participant back unchanged.
func TestJoinerHasItsOwnTime(t *testing.T) {
	ta := newTestArena(t, 4)
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	p := ta.peek(t) // acts as a joiner without a byte lock
	dead, joining := makeSlotWord(phaseDead, 4), makeSlotWord(phaseJoining, 5)
	p.u32(p.slot(3) + slotState).Store(uint32(dead))
	require.True(t, p.take(3, dead, 5, 0))
	doorbell := a.u32(a.slot(a.mySlot) + slotWatchDoorbell)
	seen := notices{}
	look := func() { a.watchEntries(wordPtr(doorbell), doorbell.Load(), []int{3}, seen, map[int]slotWord{}) }
	look()
	first := seen[3]
	require.Equal(t, joining, first.of)
	first.when -= joinTimeout / 2
	seen[3] = first
	look()
	require.Equal(t, first, seen[3], "the time of a joiner must not begin again")
	first.when -= joinTimeout
	seen[3] = first
	require.True(t, p.casSlot(3, joining, dead))
	require.True(t, p.take(3, dead, 5, 0))
	look()
	require.Equal(t, joining, a.slotState(3), "the next joiner was given up too early, because of the time of the joiner before it: %+v", seen[3])
	p.u32(p.slot(3) + slotState).Store(0)
}

// TestDeathOfAJoinerWithoutByteIsOver: a joiner without a byte lock has died before it was live, so
// the kernel never marks its alive words. The reap must still finish. Otherwise the slot would stay
// dead, and processes that wait for the end of this participant would wait for ever.
func TestDeathOfAJoinerWithoutByteIsOver(t *testing.T) {
	ta := newTestArena(t, 4)
	ta.join(t, "before").close(t)
	p := ta.peek(t)
	require.Nil(t, p.lock)
	p.u32(p.slot(3) + slotState).Store(uint32(makeSlotWord(phaseDead, 5)))
	for k := range aliveWords {
		p.u32(p.aliveWord(3, k)).Store(4711) // as an earlier participant may have left it
	}
	require.True(t, p.ended(3))
	p.u32(p.slot(3) + slotCaps).Store(makeCaps(capRobust, 4))
	require.True(t, p.ended(3), "the capabilities are those of an earlier participant")
	p.u32(p.slot(3) + slotCaps).Store(makeCaps(capRobust, 5))
	require.False(t, p.ended(3), "the kernel marks a participant that was live")
}

// TestLateReaperLosesNoSlot checks that a slow reaper does not change a slot that a joiner has taken meanwhile. If
// the joiner dies, the slot must become free again.
func TestLateReaperLosesNoSlot(t *testing.T) {
	a := newMemfdArena(t, 4)
	f, err := a.seg.Reopen() // the descriptor of the joiner
	require.NoError(t, err)
	locked, err := shmsync.LockByte(f, a.lockByte(3))
	require.NoError(t, err)
	require.True(t, locked)
	dead := makeSlotWord(phaseDead, 5)
	a.u32(a.slot(3) + slotState).Store(uint32(dead))
	require.True(t, a.take(3, dead, 6, 0))
	caps := a.slotCaps(3)
	require.NotZero(t, caps)
	a.freeSlot(3, dead, false) // as a reaper would that has read the state of the slot before the joiner took it
	joining := a.slotState(3)
	require.True(t, joining.is(phaseJoining, 6), "the joiner must keep the slot")
	require.Equal(t, caps, a.slotCaps(3))
	require.True(t, joining.hasByte())
	require.False(t, a.surveyDead(3, joining))
	require.NoError(t, f.Close()) // the joiner dies
	doorbell := a.u32(a.slot(a.mySlot) + slotWatchDoorbell)
	pollFor(t, a, func() bool {
		a.watchEntries(wordPtr(doorbell), doorbell.Load(), []int{3}, notices{}, map[int]slotWord{})
		return a.slotState(3) != joining
	})
}

// TestSuccessorCleansUpAfterManySuccessors: many joiners take over the same slot and die one after
// the other, each before it has finished the reap of its predecessors. The last joiner must finish
// all of these reaps.
func TestSuccessorCleansUpAfterManySuccessors(t *testing.T) {
	a := newMemfdArena(t, 4)
	const successors = 40
	for g := range uint32(successors) {
		off, err := a.Alloc(100, 0)
		require.NoError(t, err)
		b, ok := a.locate(off)
		require.True(t, ok)
		a.u64(a.touchedWord(3, b.chunk/64)).Or(1 << (b.chunk % 64))
		require.True(t, b.swap(makeBlock(blockRaw, 0), makeBlock(blockClaimed, makeParticipantID(3, g+1))))
	}
	require.EqualValues(t, successors, a.Stats().Claimed)
	a.u32(a.slot(3) + slotState).Store(uint32(makeSlotWord(phaseDead, successors)))
	a.reclaimMemory(makeParticipantID(3, successors))
	require.Zero(t, a.Stats().Claimed)
	require.EqualValues(t, successors, a.u32(a.slot(3)+slotReclaimed).Load())
	// If a peer overwrites the field, the only effect is a short delay.
	a.u32(a.slot(3) + slotReclaimed).Store(0)
	a.reclaimMemory(makeParticipantID(3, maxGeneration))
}
