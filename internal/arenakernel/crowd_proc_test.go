//go:build linux

package arenakernel

import (
	"fmt"
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

func newCrowd(t testing.TB, n int) *crowd {
	c := &crowd{testArena: newTestArena(t, n+4)}
	c.opts.Size = 8 << 20
	for range n {
		c.members = append(c.members, c.quiet(t))
	}
	return c
}

// quiet adds a process that joins without asking to be told of deaths.
func (c *crowd) quiet(t testing.TB) *remote {
	r := c.start(t, proctest.Env("GOMAXPROCS=1"))
	r.self = r.must(t, order{Do: "open quietly", Arena: c.name, Opts: &c.opts}).Self
	return r
}

// doorbells is how often any doorbell of the arena has been rung. A look at the arena's file tells,
// without joining.
func (c *crowd) doorbells(t testing.TB) (rung uint32) {
	a, err := peek(c.path())
	require.NoError(t, err)
	for i := 1; i <= a.geo.slots; i++ {
		rung += a.u32(a.slot(i)+slotWatchDoorbell).Load() + a.u32(a.slot(i)+slotDoorbell).Load()
	}
	return rung
}

// await waits until the slot of a participant that has left or died is free.
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

// comeAndGo has a process join and leave.
func (c *crowd) comeAndGo(t testing.TB) {
	a, err := Open(c.name, &c.opts)
	require.NoError(t, err)
	require.NoError(t, a.Close())
}

// dieAmong has a process join and die.
func (c *crowd) dieAmong(t testing.TB) {
	v := c.quiet(t)
	v.must(t, order{Do: "fenced"})
	v.Kill(t)
	c.await(t, v.self)
}

// A join, a leave and a death wake no more participants in a large crowd than in a small one.
func TestFewAreWokenByAnEvent(t *testing.T) {
	few, many := 4, 16
	rings := map[string][2]uint32{}
	for k, n := range []int{few, many} {
		c := newCrowd(t, n)
		for what, event := range map[string]func(testing.TB){"join and leave": c.comeAndGo, "join and death": c.dieAmong} {
			const events = 3
			before := c.doorbells(t)
			for range events {
				event(t)
			}
			r := rings[what]
			r[k] = (c.doorbells(t) - before) / events
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

// BenchmarkCostAmongMany measures the CPU time that a join and a leave, or a join and a death,
// costs all those that have nothing to do with it. SHMSYNC_TEST_CROWD says how many there are;
// without it there are 8.
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
