//go:build linux

package cinterop

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// A C program is killed while it waits for an item, or after it was woken for one. Another waiter gets the item.
func TestKillQueue(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		for _, point := range []string{"queue.wait.announced", "queue.wait.woken", "queue.wait.passed"} {
			t.Run(point+"/"+lang, func(t *testing.T) {
				name := newArena(t)
				x := newAgent(t, lang, name, "puts")
				off := x.do(t, "queue.open", "q", 4)
				victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT="+point)
				victim.mortal = true
				if point == "queue.wait.announced" {
					victim.start(t, "queue.get", "q")
					victim.ends(t)
				} else {
					victim.blocked(t, off, 1, "queue.get", "q")
				}
				y := newAgent(t, lang, name, "waits")
				n := uint64(2)
				if point == "queue.wait.announced" {
					n = 1
				}
				w := y.blocked(t, off, n, "queue.get", "q")
				x.do(t, "queue.put", "q", 1)
				x.do(t, "queue.put", "q", 2)
				if point != "queue.wait.announced" {
					victim.ends(t)
				}
				got := []uint64{w.must(t)}
				for {
					p := x.start(t, "queue.tryget", "q").wait(t)
					if p.err != 0 {
						break
					}
					got = append(got, p.n)
				}
				if point == "queue.wait.passed" {
					require.Len(t, got, 1, "the victim has got the other item")
				} else {
					require.ElementsMatch(t, []uint64{1, 2}, got)
				}
				sound(t, name)
			})
		}
		t.Run("queue.shutdown.marked/"+lang, func(t *testing.T) {
			name := newArena(t)
			x := newAgent(t, lang, name, "waits")
			off := x.do(t, "queue.open", "q", 4)
			w := x.blocked(t, off, 1, "queue.get", "q")
			victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT=queue.shutdown.marked")
			victim.mortal = true
			victim.start(t, "queue.shutdown", "q")
			victim.ends(t)
			w.fails(t, syscall.ECANCELED)
			sound(t, name)
		})
		t.Run("queue.reap.freed/"+lang, func(t *testing.T) {
			name := newArena(t)
			c := newAgent(t, "c", name, "dies in a put", "SHMSYNC_CRASHPOINT=queue.add.written")
			x := newAgent(t, lang, name, "waits")
			x.do(t, "queue.open", "q", 1)
			victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT=queue.reap.freed")
			victim.mortal = true
			victim.do(t, "queue.len", "q")
			c.mortal = true
			c.start(t, "queue.put", "q", 7)
			c.ends(t)
			x.start(t, "queue.tryget", "q").wait(t)
			for n := range uint64(20) {
				x.do(t, "queue.put", "q", n)
				require.Equal(t, n, x.do(t, "queue.get", "q"))
			}
			sound(t, name)
		})
	}
}

// A C program is killed after it has put an item back, and before it has announced the item. Another C program has
// already searched for items that came back, and remembers that it found only one. It still finds the item of the dead
// program.
func TestKillQueueReturnAfterASearch(t *testing.T) {
	name := newArena(t)
	x := newAgent(t, "c", name, "gets")
	x.do(t, "queue.open", "q", 4)
	victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT=queue.back.committed")
	victim.mortal = true
	x.do(t, "queue.put", "q", 1)
	x.do(t, "queue.put", "q", 2)
	require.Equal(t, uint64(1), x.do(t, "queue.lease", "q"))
	require.Equal(t, uint64(2), victim.do(t, "queue.lease", "q"))
	x.do(t, "queue.nack", "q")
	require.Equal(t, uint64(1), x.do(t, "queue.tryget", "q"), "it searches for items that came back")
	there := func() int {
		i, err := arenakernel.Inspect(name)
		require.NoError(t, err)
		defer i.Close()
		return len(i.Participants())
	}
	before := there()
	victim.start(t, "queue.nack", "q")
	victim.ends(t)
	eventually(t, "the victim is reaped", name, func() bool { return there() == before-1 })
	require.Equal(t, uint64(2), x.do(t, "queue.tryget", "q"))
	x.start(t, "queue.tryget", "q").fails(t, syscall.EBUSY)
	sound(t, name)
}
