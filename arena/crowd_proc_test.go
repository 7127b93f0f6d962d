//go:build linux

package arena

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/proctest"
)

func init() {
	// "open quietly" joins without asking to be told of deaths.
	agentOrders["open quietly"] = func(s *agent, o order, a *answer) (err error) {
		s.arena, err = Open(o.Arena, o.Opts)
		return err
	}
}

// crowd is n processes that have joined an arena, and do nothing.
type crowd struct {
	*testArena
	members []*remote
}

func newCrowd(t *testing.T, n int) *crowd {
	c := &crowd{testArena: newTestArena(t, n+4)}
	c.opts.Size = 8 << 20
	for range n {
		c.members = append(c.members, c.quiet(t))
	}
	return c
}

// quiet adds a process that joins without asking to be told of deaths.
func (c *crowd) quiet(t *testing.T) *remote {
	r := c.start(t, proctest.Env("GOMAXPROCS=1"))
	r.self = r.must(t, order{Do: "open quietly", Arena: c.name, Opts: &c.opts}).Self
	return r
}

// bells is how often any bell of the arena has been rung. A look at the arena's file tells,
// without joining.
func (c *crowd) bells(t *testing.T) (rung uint32) {
	a, err := peek(c.path())
	require.NoError(t, err)
	for i := 1; i <= a.geo.slots; i++ {
		rung += a.u32(a.slot(i)+slotWatchBell).Load() + a.u32(a.slot(i)+slotDoorbell).Load()
	}
	return rung
}

// await waits until the slot of who has left, or died, is free.
func (c *crowd) await(t *testing.T, who Name) {
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

// comeAndGo has a process join and leave.
func (c *crowd) comeAndGo(t *testing.T) {
	a, err := Open(c.name, &c.opts)
	require.NoError(t, err)
	require.NoError(t, a.Close())
}

// dieAmong has a process join and die.
func (c *crowd) dieAmong(t *testing.T) {
	v := c.quiet(t)
	v.must(t, order{Do: "fenced"})
	v.Kill(t)
	c.await(t, v.self)
}

// What a join, a leave or a death wakes does not grow with the number of participants.
func TestFewAreWokenByAnEvent(t *testing.T) {
	few, many := 4, 16
	rings := map[string][2]uint32{}
	for k, n := range []int{few, many} {
		c := newCrowd(t, n)
		for what, event := range map[string]func(*testing.T){"join and leave": c.comeAndGo, "join and death": c.dieAmong} {
			const events = 3
			before := c.bells(t)
			for range events {
				event(t)
			}
			r := rings[what]
			r[k] = (c.bells(t) - before) / events
			rings[what] = r
		}
	}
	for what, r := range rings {
		require.LessOrEqual(t, r[1], uint32(20), "%s: rings among %d, %d", what, few, many)
		require.InDelta(t, r[0], r[1], 4, "%s: rings among %d, %d", what, few, many)
	}
}

// cpuOf is the CPU time of a process, of all its threads.
func cpuOf(pid int) time.Duration {
	var ts unix.Timespec
	clock := int32(^pid<<3 | 2) // the CPU clock of another process, as clock_getcpuclockid gives it
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

// TestCostAmongMany measures what joins, leaves and deaths cost all those that have nothing to
// do with it: SHMSYNC_TEST_CROWD is how many there are.
func TestCostAmongMany(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("SHMSYNC_TEST_CROWD"))
	if err != nil {
		t.Skip("a measurement: SHMSYNC_TEST_CROWD=500")
	}
	begin := time.Now()
	c := newCrowd(t, n)
	t.Logf("%d processes started in %v; %v of CPU", n, time.Since(begin), c.cpu())
	c.comeAndGo(t)
	const events = 20
	for _, e := range []struct {
		what  string
		event func(*testing.T)
	}{{"join and leave", c.comeAndGo}, {"join and death", c.dieAmong}} {
		// Idle processes of Go use a little CPU, too.
		rest, restBegin := c.cpu(), time.Now()
		<-time.After(200 * time.Millisecond)
		idle := float64(c.cpu()-rest) / float64(time.Since(restBegin))
		cpu, self, bells, begin := c.cpu(), cpuOf(os.Getpid()), c.bells(t), time.Now()
		for range events {
			e.event(t)
		}
		<-time.After(20 * time.Millisecond) // for what the last event has left to do
		d := time.Since(begin)
		t.Logf("%s: %v of CPU of others (idle use %v is taken off), %v of this process, %v each, %d rings", e.what,
			(c.cpu()-cpu-time.Duration(idle*float64(d)))/events, time.Duration(idle*float64(d))/events, (cpuOf(os.Getpid())-self)/events, d/events, (c.bells(t)-bells)/events)
	}
}
