//go:build linux

package prims_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// shortLife says how long each part of a process's short stay in an arena took.
type shortLife struct {
	Join, Open, Lock, Leave time.Duration
}

func (l shortLife) all() time.Duration { return l.Join + l.Open + l.Lock + l.Leave }

// liveShortly opens the arena, locks its Mutex once, and leaves. It returns how long each part took.
func liveShortly(name string) (l shortLife, err error) {
	last := time.Now()
	lap := func(d *time.Duration) {
		now := time.Now()
		*d, last = now.Sub(last), now
	}
	a, err := arena.Open(name, nil)
	if err != nil {
		return l, err
	}
	lap(&l.Join)
	m, err := prims.OpenMutex(a, "m", nil)
	if err != nil {
		return l, err
	}
	lap(&l.Open)
	m.Lock()
	m.Unlock()
	lap(&l.Lock)
	err = a.Close()
	lap(&l.Leave)
	return l, err
}

func init() {
	proctest.Register("short-life", func(c *proctest.Child) {
		var p struct {
			Arena string
			Lives int
		}
		c.Params(&p)
		for range p.Lives {
			l, err := liveShortly(p.Arena)
			if err != nil {
				c.Fatal(err)
			}
			c.Say(l)
		}
	})
}

// newVillage makes an arena with a Mutex m, and starts n processes that stay in it. It returns the name of the
// arena.
func newVillage(t testing.TB, n int) string {
	a := newArena(t, nil)
	_, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	for range n - 1 {
		proctest.Start(t, "joined", proctest.Params(nameOf(a))).Await(t)
	}
	return nameOf(a)
}

func init() {
	proctest.Register("joined", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, nil)
		if err != nil {
			c.Fatal(err)
		}
		defer a.Close()
		c.Ready()
		c.Await()
	})
}

// TestShortLivesLeaveNothing: short stays leave neither participants nor death records behind. Each part of a
// stay is measured.
func TestShortLivesLeaveNothing(t *testing.T) {
	name := newVillage(t, 2)
	const lives = 5
	p := proctest.Start(t, "short-life", proctest.Params(map[string]any{"Arena": name, "Lives": lives}))
	for range lives {
		var l shortLife
		p.Recv(t, &l)
		for _, part := range []time.Duration{l.Join, l.Open, l.Lock, l.Leave} {
			require.Positive(t, part, "%+v", l)
		}
	}
	p.WaitExit(t)
	i, err := arena.Inspect(name)
	require.NoError(t, err)
	defer i.Close()
	require.Len(t, i.Participants(), 2)
	for _, r := range i.DeathRecords() {
		require.True(t, r.Left, "%+v", r)
	}
	require.NoError(t, i.Check())
}

// BenchmarkShortLife measures the total cost of a process that opens an arena, locks once, and leaves. Each
// process does so once, or a hundred times.
func BenchmarkShortLife(b *testing.B) {
	for _, neighbours := range []int{1, 4} {
		for _, lives := range []int{1, 100} {
			b.Run(fmt.Sprintf("neighbours=%d/lives=%d", neighbours, lives), func(b *testing.B) {
				name := newVillage(b, neighbours)
				var all []shortLife
				for b.Loop() {
					p := proctest.Start(b, "short-life", proctest.Params(map[string]any{"Arena": name, "Lives": lives}))
					for range lives {
						var l shortLife
						p.Recv(b, &l)
						all = append(all, l)
					}
					p.WaitExit(b)
				}
				for _, part := range []struct {
					what string
					of   func(shortLife) time.Duration
				}{
					{"join", func(l shortLife) time.Duration { return l.Join }},
					{"open", func(l shortLife) time.Duration { return l.Open }},
					{"lock", func(l shortLife) time.Duration { return l.Lock }},
					{"leave", func(l shortLife) time.Duration { return l.Leave }},
					{"all", shortLife.all},
				} {
					var d []time.Duration
					for _, l := range all {
						d = append(d, part.of(l))
					}
					slices.Sort(d)
					b.ReportMetric(float64(d[len(d)/2])/1e3, part.what+"-p50-µs")
					b.ReportMetric(float64(d[len(d)*99/100])/1e3, part.what+"-p99-µs")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
