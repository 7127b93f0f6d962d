//go:build linux

package arenakernel

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/proctest"
)

func init() {
	// "open quietly" joins without a call of OnDeath.
	agentOrders["open quietly"] = func(s *agent, o order, a *answer) (err error) {
		s.arena, err = Open(o.Arena, o.Opts)
		return err
	}
}

func init() {
	// "watched" returns how often the death watcher has returned from its sleep.
	agentOrders["watched"] = func(s *agent, o order, a *answer) error {
		a.N = int64(s.arena.watched.Load())
		return nil
	}
	// "has handed over" reports whether this process has made the data of the dead participant Name available to other
	// participants. If so, it has also found out which process is the reaper.
	agentOrders["has handed over"] = func(s *agent, o order, a *answer) error {
		s.arena.reapMu.Lock()
		defer s.arena.reapMu.Unlock()
		if b := s.arena.reaps[o.Name.Slot()]; b != nil && b.data {
			a.N = 1
		}
		return nil
	}
	// "slept" returns how often the death watcher has slept in a normal system call, not in a quiet
	// one that the Go scheduler does not see.
	agentOrders["slept"] = func(s *agent, o order, a *answer) error {
		a.N = int64(s.arena.slept.Load())
		return nil
	}
}

// A crowd is n processes that have joined an arena and do nothing.
type crowd struct {
	*testArena
	members []*remote
}

func newCrowd(t testing.TB, n int) *crowd {
	c := &crowd{testArena: newTestArena(t, n+4)}
	c.opts.Size = 8 << 20
	for range n {
		c.members = append(c.members, c.quiet(t))
	}
	return c
}

// quiet adds a process that joins without a call of OnDeath.
func (c *crowd) quiet(t testing.TB) *remote {
	r := c.start(t, proctest.Env("GOMAXPROCS=1"))
	r.self = r.must(t, order{Do: "open quietly", Arena: c.name, Opts: &c.opts}).Self
	return r
}

// doorbells returns how often the doorbells of all participants have been rung. It reads the file
// of the arena without joining.
func (c *crowd) doorbells(t testing.TB) (rung uint32) {
	a, err := peek(c.path())
	require.NoError(t, err)
	for i := 1; i <= a.geo.slots; i++ {
		rung += a.u32(a.slot(i)+slotWatchDoorbell).Load() + a.u32(a.slot(i)+slotDoorbell).Load()
	}
	return rung
}

// await waits until the slot of a participant that has left or died is free again.
func (c *crowd) await(t testing.TB, who ParticipantID) {
	end := time.Now().Add(bound())
	pollUntil(func() bool {
		a, err := peek(c.path())
		require.NoError(t, err)
		if time.Now().After(end) {
			t.Fatalf("slot %v is not free\n%s", who, dumpWords(c.path()))
		}
		return a.slotState(who.Slot()).phase() == phaseFree
	})
}

// comeAndGo makes a process join and leave.
func (c *crowd) comeAndGo(t testing.TB) {
	a, err := Open(c.name, &c.opts)
	require.NoError(t, err)
	require.NoError(t, a.Close())
}

// dieAmong makes a process join, and kills it.
func (c *crowd) dieAmong(t testing.TB) {
	v := c.quiet(t)
	v.must(t, order{Do: "fenced"})
	v.Kill(t)
	c.await(t, v.self)
}

// TestWatchersAreRungBeforeOpenReturns: before Open returns, it rings the doorbell of each
// participant that has to watch the new participant. So the death of the new participant is noticed
// even if it dies at once with a lock held, while one of its watchers is stopped.
func TestWatchersAreRungBeforeOpenReturns(t *testing.T) {
	c := newCrowd(t, watchTargets)
	first := c.peek(t).u32(c.peek(t).slot(1) + slotWatchDoorbell)
	for range proctest.Rounds(100, 1000) {
		before := first.Load()
		a, err := Open(c.name, &c.opts)
		require.NoError(t, err)
		rung := first.Load() != before
		require.NoError(t, a.Close())
		require.True(t, rung, "the doorbell of the first of %d watchers was not rung", watchTargets)
	}
}

// TestFewAreWokenByAnEvent: a join, a leave or a death wakes no more participants if there are many
// participants than if there are few.
func TestFewAreWokenByAnEvent(t *testing.T) {
	const few, many, ringsMore = 4, 16, 4
	rings := map[string][2]uint32{}
	for k, n := range []int{few, many} {
		c := newCrowd(t, n)
		for what, event := range map[string]func(testing.TB){"join and leave": c.comeAndGo, "join and death": c.dieAmong} {
			// On a busy host, several watchers may handle the same death, and the count may contain
			// rings of the previous event. So the test uses the smallest count of several tries.
			least, enough := uint32(math.MaxUint32), rings[what][0]+ringsMore
			for tries := 0; tries < 10 || n == many && least > enough && tries < 200; tries++ {
				before := c.doorbells(t)
				event(t)
				least = min(least, c.doorbells(t)-before)
			}
			r := rings[what]
			r[k] = least
			rings[what] = r
		}
	}
	t.Logf("rings among %d and %d: %v", few, many, rings)
	for what, r := range rings {
		require.LessOrEqual(t, r[1], r[0]+ringsMore, "%s: rings among %d participants, and among %d; a ring for each participant would be 12 more", what, few, many)
	}
}

// sum sends an order to all members and returns the sum of their answers.
func (c *crowd) sum(t testing.TB, ask string) (n int64) {
	for _, m := range c.members {
		n += m.must(t, order{Do: ask}).N
	}
	return n
}

// TestWatchersSleepOn: a death watcher that returns from its sleep wakes threads of the Go runtime.
// That costs more than a join, a leave or a death costs otherwise. So a join or a leave must make no
// watcher return. A death wakes three watchers, and must make only one of them return.
func TestWatchersSleepOn(t *testing.T) {
	if !quietBuild {
		t.Skip("needs a build of gc for amd64 or arm64 without sanitizers, race detector and noasm: other watchers return for each event")
	}
	// most is how often watchers may return for a death: for the mark, for the checks of the dead process's threads, and
	// for the end of the reap.
	const most = 6
	c := newCrowd(t, 6)
	for _, m := range c.members {
		m.must(t, order{Do: "fenced"}) // all work that the process had postponed is done
	}
	for what, event := range map[string]func(testing.TB){"join and leave": c.comeAndGo, "join and death": c.dieAmong} {
		// On a busy host, a process takes long to end, and several watchers may handle the same
		// death. So the test uses the smallest number.
		least, enough := int64(math.MaxInt64), int64(most)
		if what == "join and leave" {
			enough = 0
		}
		for n := 0; n < 8 || n < 200 && least > enough; n++ {
			before := c.sum(t, "watched")
			event(t)
			least = min(least, c.sum(t, "watched")-before)
		}
		t.Logf("%s: %d returns", what, least)
		require.LessOrEqual(t, least, enough, what)
	}
}

// TestWatchersWaitQuietlyForTheEndOfAProcess: a watcher that waits until it may free a slot uses a
// quiet system call, which the Go scheduler does not see. In any other system call, the thread
// would keep its P at first, and sysmon would check it every 20 us until it has taken the P away.
func TestWatchersWaitQuietlyForTheEndOfAProcess(t *testing.T) {
	if !quietBuild {
		t.Skip("needs a build of gc for amd64 or arm64 without sanitizers, race detector and noasm: other watchers return for each event")
	}
	c := newCrowd(t, 4)
	for _, m := range c.members {
		m.must(t, order{Do: "fenced"})
	}
	least := int64(math.MaxInt64)
	// On a busy host, several watchers may handle a death, so the smallest number of several tries counts.
	for n := 0; n < 100 && least > 0; n++ {
		before := c.sum(t, "slept")
		c.dieAmong(t)
		least = min(least, c.sum(t, "slept")-before)
	}
	require.Zero(t, least, "sleeps that were not quiet")
}

// TestCallThatMeetsADeathFreesTheSlot: the watchers of a dead participant are stopped. Another process, which does
// not watch that participant, finds the death in a call. The process that has found the death must also free the
// slot, although its own death watcher is asleep.
func TestCallThatMeetsADeathFreesTheSlot(t *testing.T) {
	c := newCrowd(t, 1+watchTargets)
	for _, m := range c.members {
		m.must(t, order{Do: "fenced"})
	}
	v := c.quiet(t)
	v.must(t, order{Do: "fenced"})
	for _, m := range c.members[1:] { // all watchers of the dead participant
		m.Stop(t)
		defer m.Cont(t)
	}
	v.Kill(t)
	v.Wait(t)
	pollUntil(func() bool { return c.members[0].must(t, order{Do: "dead", Name: v.self}).N == 1 })
	c.await(t, v.self)
}

// TestLoserOfAReapKeepsTheSlot: the watchers of a dead participant are stopped. Two other processes begin to reap it.
// The process that becomes the reaper dies at once. The process that did not become the reaper must free the slot.
func TestLoserOfAReapKeepsTheSlot(t *testing.T) {
	c := newCrowd(t, 2+watchTargets)
	for _, m := range c.members {
		m.must(t, order{Do: "fenced"})
	}
	loser, winner, watchers := c.members[0], c.members[1], c.members[2:]
	v := c.quiet(t)
	v.must(t, order{Do: "fenced"})
	for _, m := range watchers {
		m.Stop(t)
		defer m.Cont(t)
	}
	a := c.peek(t)
	reaper := a.u32(a.slot(v.self.Slot()) + slotReaper)
	reaper.Store(uint32(winner.self)) // as if winner had begun the reap
	v.Kill(t)
	v.Wait(t)
	pollFor(t, a, func() bool { return loser.must(t, order{Do: "dead", Name: v.self}).N == 1 })
	pollFor(t, a, func() bool { return loser.must(t, order{Do: "has handed over", Name: v.self}).N == 1 })
	winner.Kill(t)
	winner.Wait(t)
	c.await(t, v.self)
	c.await(t, winner.self)
}

// TestShortLivesFreeTheSlotsOfTheDead: a reaper waits a moment after a death before it frees the
// slot. Participants that leave before this time has passed must also free the slots of dead
// participants.
func TestShortLivesFreeTheSlotsOfTheDead(t *testing.T) {
	for range 5 {
		c := newCrowd(t, 2)
		for _, m := range c.members {
			m.must(t, order{Do: "fenced"})
		}
		for _, m := range c.members {
			m.Kill(t)
			m.Wait(t)
		}
		left := func() (n int) {
			a, err := peek(c.path())
			require.NoError(t, err)
			for _, m := range c.members {
				if a.slotState(m.self.Slot()).taken() {
					n++
				}
			}
			return n
		}
		joins := 0
		for end := time.Now().Add(bound()); left() > 0 && time.Now().Before(end); joins++ {
			c.comeAndGo(t)
		}
		t.Logf("%d joins", joins)
		require.Zero(t, left(), "after %d joins\n%s", joins, dumpWords(c.path()))
	}
}

// cpuOf returns the CPU time of all threads of a process.
func cpuOf(pid int) time.Duration {
	var ts unix.Timespec
	clock := int32(^pid<<3 | 2) // the CPU clock of the other process, computed as in clock_getcpuclockid
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

func (c *crowd) cpu() (d time.Duration) {
	for _, m := range c.members {
		d += cpuOf(m.Pid())
	}
	return d
}

// BenchmarkCostAmongMany measures how much CPU time of all other participants a join and a leave
// cost, and how much a join and a death cost. SHMSYNC_TEST_CROWD is the number of the other
// participants; the default is 8.
func BenchmarkCostAmongMany(b *testing.B) {
	n := 8
	if v, err := strconv.Atoi(os.Getenv("SHMSYNC_TEST_CROWD")); err == nil {
		n = v
	}
	for what, event := range map[string]func(*crowd, testing.TB){"leave": (*crowd).comeAndGo, "death": (*crowd).dieAmong} {
		b.Run(fmt.Sprintf("%s/%d", what, n), func(b *testing.B) {
			c := newCrowd(b, n)
			event(c, b)
			cpu, doorbells := c.cpu(), c.doorbells(b)
			for b.Loop() {
				event(c, b)
			}
			b.ReportMetric(float64(c.cpu()-cpu)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(c.doorbells(b)-doorbells)/float64(b.N), "rings/op")
		})
	}
}
