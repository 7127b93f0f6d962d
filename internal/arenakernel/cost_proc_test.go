//go:build linux

package arenakernel

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/race"
)

func init() {
	// "make" makes N named objects. This process keeps none of them open.
	agentOrders["make"] = func(s *agent, o order, a *answer) error {
		for k := range o.N {
			x, _, err := s.arena.OpenObject(small(strconv.Itoa(k)))
			if err != nil {
				return err
			}
			s.arena.CloseObject(x)
		}
		return nil
	}
	// "looked at" returns how many block words and directory entries this process has read so far.
	agentOrders["looked at"] = func(s *agent, o order, a *answer) error {
		a.N = int64(s.arena.work.Load())
		return nil
	}
	// "claim nodes" claims N wait nodes, as N goroutines that wait would do.
	agentOrders["claim nodes"] = func(s *agent, o order, a *answer) error {
		for range o.N {
			if _, err := s.arena.ClaimNode(); err != nil {
				return err
			}
		}
		return nil
	}
	// "erase" deletes the object called Text.
	agentOrders["erase"] = func(s *agent, o order, a *answer) error { return s.arena.Delete(o.Text) }
	// "keep open" opens the object called Text.
	agentOrders["keep open"] = func(s *agent, o order, a *answer) error {
		_, _, err := s.arena.OpenObject(small(o.Text))
		return err
	}
}

func small(name string) ObjectSpec {
	return ObjectSpec{Kind: testKind, Version: 3, Name: name, Size: 8}
}

// amongObjects makes an arena with n objects. The process that made them is idle.
func amongObjects(t testing.TB, n int) (c *crowd, maker *remote) {
	c = &crowd{testArena: newTestArena(t, 8)}
	c.opts.Size = 96 << 20
	maker = c.quiet(t)
	maker.must(t, order{Do: "make", N: n})
	return c, maker
}

// TestLeaveAndDeathLookAtWhatWasTouched: the cost of a leave or a death depends on the objects that
// the participant has used, and not on the number of objects in the arena. With many objects in the
// arena, no more block words and directory entries are read than with few.
func TestLeaveAndDeathLookAtWhatWasTouched(t *testing.T) {
	const few, many = 1, 5000
	// A leave or a death searches the chunk of an object eight times at most: twice for holds, twice for lost wakes,
	// once each for names, for claims and for open bits, and before all these once for the name of the object.
	const most = 10 * blockWords
	for what, event := range map[string]func(t *testing.T, c *crowd, maker *remote) int64{
		"leave": func(t *testing.T, c *crowd, _ *remote) int64 {
			a, err := Open(c.name, &c.opts)
			require.NoError(t, err)
			before := a.work.Load()
			require.NoError(t, a.Close())
			return int64(a.work.Load() - before)
		},
		"leave with an object": func(t *testing.T, c *crowd, _ *remote) int64 {
			a, err := Open(c.name, &c.opts)
			require.NoError(t, err)
			_, _, err = a.OpenObject(small("0"))
			require.NoError(t, err)
			before := a.work.Load()
			require.NoError(t, a.Close())
			return int64(a.work.Load() - before)
		},
		"death": func(t *testing.T, c *crowd, maker *remote) int64 {
			before := maker.must(t, order{Do: "looked at"}).N
			c.dieAmong(t)
			return maker.must(t, order{Do: "looked at"}).N - before
		},
		"death with an object": func(t *testing.T, c *crowd, maker *remote) int64 {
			before := maker.must(t, order{Do: "looked at"}).N
			v := c.quiet(t)
			v.must(t, order{Do: "keep open", Text: "0"})
			v.must(t, order{Do: "fenced"})
			v.Kill(t)
			c.await(t, v.self)
			maker.must(t, order{Do: "erase", Text: "0"}) // this clears the open bit for object "0"
			return maker.must(t, order{Do: "looked at"}).N - before
		},
	} {
		t.Run(what, func(t *testing.T) {
			work := map[int]int64{}
			for _, n := range []int{few, many} {
				c, maker := amongObjects(t, n)
				work[n] = event(t, c, maker)
			}
			t.Logf("looked at: %v", work)
			require.LessOrEqual(t, work[many], int64(most))
			if what == "leave" || what == "death" {
				require.Zero(t, work[few]+work[many], "no words need to be read, because the process has touched nothing")
			}
		})
	}
}

// TestLeaveAndDeathPassOverTheWaitsOfOthers: a participant that has used nothing leaves or dies.
// Then no process reads the wait nodes of other participants, and no process checks whether one of
// its own waits has missed a wake.
func TestLeaveAndDeathPassOverTheWaitsOfOthers(t *testing.T) {
	c, maker := amongObjects(t, 1)
	maker.must(t, order{Do: "claim nodes", N: 1000})
	deaths := func() uint32 {
		a, err := peek(c.path())
		require.NoError(t, err)
		return a.u32(hdrDeaths).Load()
	}
	before, counted := maker.must(t, order{Do: "looked at"}).N, deaths()
	a, err := Open(c.name, &c.opts)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.Zero(t, a.work.Load(), "words that the leaver looked at")
	c.dieAmong(t)
	require.Equal(t, before, maker.must(t, order{Do: "looked at"}).N, "words that the reaper looked at")
	require.Equal(t, counted, deaths(), "reaps after which every process checks its waits")
	// The wait nodes of a participant that did use an object are freed.
	v := c.quiet(t)
	v.must(t, order{Do: "claim nodes", N: 10})
	v.must(t, order{Do: "fenced"})
	v.Kill(t)
	c.await(t, v.self)
	require.EqualValues(t, 1000, maker.stats(t).Nodes)
	require.Greater(t, deaths(), counted)
}

// BenchmarkCostAmongObjects measures the leave and the death of a process that has used nothing,
// for several numbers of objects in the arena.
func BenchmarkCostAmongObjects(b *testing.B) {
	for _, n := range []int{0, 1000, 100000} {
		b.Run(fmt.Sprintf("leave/%d", n), func(b *testing.B) {
			c, _ := amongObjects(b, n)
			total := time.Duration(0)
			for b.Loop() {
				a, err := Open(c.name, &c.opts)
				require.NoError(b, err)
				begun := time.Now()
				require.NoError(b, a.Close())
				total += time.Since(begun)
			}
			b.ReportMetric(float64(total)/float64(b.N), "close-ns/op")
		})
		b.Run(fmt.Sprintf("death/%d", n), func(b *testing.B) {
			c, maker := amongObjects(b, n)
			total, cpu := time.Duration(0), time.Duration(0)
			for b.Loop() {
				v := c.quiet(b)
				v.must(b, order{Do: "fenced"})
				used, begun := cpuOf(maker.Pid()), time.Now()
				v.Kill(b)
				c.await(b, v.self)
				total += time.Since(begun)
				cpu += cpuOf(maker.Pid()) - used
			}
			b.ReportMetric(float64(total)/float64(b.N), "free-ns/op")
			b.ReportMetric(float64(cpu)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkCreateAfterFull creates and deletes an object in an empty directory that once had many
// names, for several numbers of names.
func BenchmarkCreateAfterFull(b *testing.B) {
	for _, n := range []int{0, 1000, 131072} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			a := newNeighbours(64<<20, 2).join(1)
			fillAndEmpty(b, a, n)
			for b.Loop() {
				createAndDelete(b, a)
			}
		})
	}
}

// TestNamesOfAFullDirectoryAreDeletedQuickly fills a directory completely and empties it again. A
// deletion must read only the entries near its own name, and not all entries that are left.
func TestNamesOfAFullDirectoryAreDeletedQuickly(t *testing.T) {
	a := newNeighbours(8<<20, 2).join(1)
	n := a.geo.dirCount
	fillAndEmpty(t, a, 1<<20)
	require.Greater(t, n, uint64(1<<13))
	require.LessOrEqual(t, a.work.Load()/n, n/16, "entries that were examined for each name")
}

// TestSearchesAfterFullAreShort: a directory was full and then emptied. After a number of slow
// searches, which pass removed entries, a search is as fast as in a new directory.
func TestSearchesAfterFullAreShort(t *testing.T) {
	if race.Enabled {
		t.Skip("needs a build without the race detector: a single goroutine searches, for minutes with it")
	}
	// While the last names are removed, many attempts to lower the reach fail. The directory is
	// large enough for later attempts to succeed.
	a := newNeighbours(16<<20, 2).join(1)
	fillAndEmpty(t, a, 1<<20)
	for range 20 {
		createAndDelete(t, a)
	}
	require.LessOrEqual(t, a.reach(), uint64(1))
	before := a.work.Load()
	createAndDelete(t, a)
	require.LessOrEqual(t, a.work.Load()-before, uint64(20))
}

// TestDeathWhileReachIsLowered: a process dies while it lowers the reach, the distance up to which
// searches go. All names must still be found, because searches use the previous reach until another
// process has completed the lowering.
func TestDeathWhileReachIsLowered(t *testing.T) {
	p := newNeighbours(2<<20, 3)
	a, b := p.join(1), p.join(2)
	fillAndEmpty(t, a, 1<<20)
	o, _, err := a.OpenObject(small("x"))
	require.NoError(t, err)
	a.CloseObject(o)
	before := a.reach()
	require.Greater(t, before, uint64(1))
	// Participant b has begun to lower the reach. It has not read the entries a second time yet, so the reach may be
	// too small.
	a.u32(hdrDirLowerer).Store(uint32(b.self))
	a.u64(hdrDirLowering).Store(uint64(lowering(0).begun(uint32(before))))
	a.u32(hdrDirReach).Store(0)
	require.Equal(t, before, a.reach())
	a.lowerReach()
	require.Equal(t, before, a.reach(), "a living participant seems to lower the reach, so no other may")
	p.kill(b.self)
	a.u32(hdrDirReach).Store(0)
	a.lowerReach()
	require.Zero(t, a.u32(hdrDirLowerer).Load())
	require.False(t, lowering(a.u64(hdrDirLowering).Load()).busy())
	require.LessOrEqual(t, a.reach(), before)
	_, created, err := a.OpenObject(small("x"))
	require.NoError(t, err)
	require.False(t, created)
}

// fillAndEmpty creates n names, or as many as the directory has room for, and deletes them.
func fillAndEmpty(t testing.TB, a *Arena, n int) {
	made := 0
	for ; made < n; made++ {
		o, _, err := a.OpenObject(small(strconv.Itoa(made)))
		if errors.Is(err, shmsync.ErrNoSpace) {
			break
		}
		require.NoError(t, err)
		a.CloseObject(o)
	}
	for k := range made {
		require.NoError(t, a.Delete(strconv.Itoa(k)))
	}
}

func createAndDelete(t testing.TB, a *Arena) {
	o, _, err := a.OpenObject(small("x"))
	require.NoError(t, err)
	a.CloseObject(o)
	require.NoError(t, a.Delete("x"))
}
