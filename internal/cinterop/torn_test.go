//go:build linux

package cinterop

import (
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// queueKind is a kind of object with a recorded queue, with the orders by which agents use it.
type queueKind struct {
	name string // of the kind
	open []any
	hold string // an order after which waits block; empty if waits always block
	wait string
	give string // an order that lets the first wait go on
	args []any  // arguments of hold, wait and give
}

var queueKinds = []queueKind{
	{"fair", []any{0}, "fair.lock", "fair.lock", "fair.unlock", nil},
	{"multi", []any{0, 1}, "multi.lock", "multi.lock", "multi.unlock", []any{7}},
	{"sem", []any{1, 0}, "sem.acquire", "sem.acquire", "sem.release", []any{1}},
	{"sem, transferable", []any{1, 1}, "sem.acquire", "sem.acquire", "sem.release", []any{1}},
	{"cond", nil, "", "cond.apart", "cond.signal", nil},
}

// hangingQueue is an object in whose queue processes wait.
type hangingQueue struct {
	queueKind
	arena  string
	off    uint64
	holder *agent // its order give lets the first wait go on
	waits  []pending
}

func newHangingQueue(t *testing.T, k queueKind, holderLang string) *hangingQueue {
	verb, _, _ := strings.Cut(k.wait, ".")
	q := &hangingQueue{queueKind: k, arena: newArena(t)}
	q.holder = newAgent(t, holderLang, q.arena, "holder")
	q.off = q.holder.do(t, verb+".open", "x", k.open...)
	if k.hold != "" {
		q.holder.do(t, k.hold, "x", k.args...)
	}
	return q
}

// add makes the process x wait at the end of the queue.
func (q *hangingQueue) add(t *testing.T, x *agent) pending {
	t.Helper()
	p := x.blocked(t, q.off, uint64(len(q.waits)+1), q.wait, "x", q.args...)
	q.waits = append(q.waits, p)
	return p
}

func (q *hangingQueue) give(t *testing.T) pending {
	t.Helper()
	return q.holder.start(t, q.queueKind.give, "x", q.args...)
}

// tear calls f, as a peer, with the nodes of the queue, in order.
func (q *hangingQueue) tear(t *testing.T, f func(n []*arenakernel.Node)) {
	t.Helper()
	asPeer(t, q.arena, q.off, func(a *arena.Arena, o arenakernel.Object) {
		k := (*arenakernel.Arena)(a)
		var all []*arenakernel.Node
		k.EachNode(o.Offset, func(_ arena.Offset, n *arenakernel.Node) {
			if n.Extra().Load()>>32 == 0 && n.Next().Load()>>32 != arenakernel.RecordedOwes {
				all = append(all, n)
			}
		})
		require.Len(t, all, 1, "the first node")
		for next := all[0].Next().Load() >> 32; next >= arenakernel.RecordedFirst; next = all[len(all)-1].Next().Load() >> 32 {
			n, err := k.NodeAt(arena.Offset(next * 64))
			require.NoError(t, err)
			all = append(all, n)
		}
		f(all)
	})
}

// behind returns a function that overwrites the link from the wait with the index i to the wait before it.
func behind(i int) func(n []*arenakernel.Node) {
	return func(n []*arenakernel.Node) { n[i].Extra().Store(1 << 63) }
}

func eachQueueKind(t *testing.T, f func(t *testing.T, k queueKind, lang string)) {
	for _, k := range queueKinds {
		for _, lang := range []string{"go", "c"} {
			t.Run(k.name+"/"+lang, func(t *testing.T) { f(t, k, lang) })
		}
	}
}

// A peer overwrites the link between two waits in a queue. These two waits, and all waits behind them, end with an
// error. A wait that is farther ahead goes on until it gets what it waits for.
func TestWaitsInATornQueueEnd(t *testing.T) {
	t.Parallel()
	eachQueueKind(t, func(t *testing.T, k queueKind, lang string) {
		q := newHangingQueue(t, k, "c")
		for _, label := range []string{"first", "second", "third", "fourth"} {
			q.add(t, newAgent(t, lang, q.arena, label))
		}
		q.tear(t, behind(2))
		for _, w := range q.waits[1:] {
			w.fails(t, syscall.EPROTO)
		}
		q.give(t).must(t)
		q.waits[0].must(t)
	})
}

// A peer overwrites the link between the first two waits in a queue, and the processes of both waits are stopped. No
// process finds the damage until the holder releases. Then the third wait ends with an error.
func TestWaitBehindStoppedOnesInATornQueueEnds(t *testing.T) {
	t.Parallel()
	eachQueueKind(t, func(t *testing.T, k queueKind, lang string) {
		if k.hold == "" {
			return // a Cond grants nothing by itself
		}
		q := newHangingQueue(t, k, "c")
		for _, label := range []string{"first", "second"} {
			x := newAgent(t, "c", q.arena, label)
			q.add(t, x)
			x.stop(t)
		}
		w := q.add(t, newAgent(t, lang, q.arena, "third"))
		q.tear(t, behind(1))
		q.give(t).wait(t)
		w.fails(t, syscall.EPROTO)
	})
}

// The queue of one key of a MultiLock is torn. A wait for another key of the same bucket gets no error for this damage,
// and gets its key.
func TestTornQueueOfOneKeyEndsNoOtherWait(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		t.Run(lang, func(t *testing.T) {
			q := newHangingQueue(t, queueKinds[1], "c")
			other := newAgent(t, "c", q.arena, "other")
			other.do(t, "multi.open", "x", 0, 1)
			other.do(t, "multi.lock", "x", 9)
			sound := newAgent(t, lang, q.arena, "sound")
			first, second := q.add(t, newAgent(t, lang, q.arena, "first")), q.add(t, newAgent(t, lang, q.arena, "second"))
			q.tear(t, behind(1))
			w := sound.start(t, "multi.lock", "x", 9)
			first.fails(t, syscall.EPROTO)
			second.fails(t, syscall.EPROTO)
			sound.do(t, "multi.lock", "x", 11) // would fail if it looked at the queue of key 7
			other.kill(t)
			w.fails(t, syscall.EOWNERDEAD)
			sound.do(t, "multi.recover", "x", 9)
			sound.do(t, "multi.lock", "x", 9)
		})
	}
}

// A peer tears the queue at the wait of a process that then dies. A second process dies, too. What the second process
// had is still reaped: its permit goes to the first wait, and a Signal that it has not used wakes the first wait.
func TestTornWaitOfTheDeadKeepsNothingElse(t *testing.T) {
	t.Parallel()
	for _, k := range queueKinds[2:] {
		for _, lang := range []string{"go", "c"} {
			t.Run(k.name+"/"+lang, func(t *testing.T) {
				q := newHangingQueue(t, k, "c")
				q.holder.mortal = true
				if k.hold == "" { // the holder has the Signal
					q.holder = newAgent(t, "c", q.arena, "signalled", "SHMSYNC_CRASHPOINT_STOP=cond.wait.woken")
					q.holder.mortal = true
					q.add(t, q.holder)
				}
				first, dies := newAgent(t, lang, q.arena, "first"), newAgent(t, "c", q.arena, "dies")
				w := q.add(t, first)
				q.add(t, dies)
				last := q.add(t, newAgent(t, lang, q.arena, "last"))
				if k.hold == "" {
					first.do(t, q.queueKind.give, "x")
					q.holder.awaitStop(t)
				}
				dies.stop(t)
				q.tear(t, behind(2))
				last.fails(t, syscall.EPROTO)
				dies.kill(t)
				q.holder.kill(t)
				if k.name == "sem, transferable" {
					first.do(t, q.queueKind.give, "x", k.args...) // a death frees no permit of a transferable semaphore
				}
				w.must(t)
			})
		}
	}
}

// During one wait, a link of its node changes up to nearly 2^32 times. The next wait in this node continues with the
// following tags. So a process that was stopped in a change of the link does not find the tag that it expects, and
// changes nothing.
func TestTagsOfLinksGoOnAfterAnyWait(t *testing.T) {
	t.Parallel()
	for _, link := range []string{"next", "extra"} {
		for _, changes := range []uint32{1 << 30, 1<<31 + 8, 1<<32 - 100} {
			t.Run(fmt.Sprintf("%s/%d", link, changes), func(t *testing.T) {
				eachQueueKind(t, func(t *testing.T, k queueKind, lang string) { tagsGoOn(t, k, lang, link, changes) })
			})
		}
	}
}

func tagsGoOn(t *testing.T, k queueKind, lang, link string, changes uint32) {
	q := newHangingQueue(t, k, "c")
	x := newAgent(t, lang, q.arena, "waits")
	word := func(n *arenakernel.Node) *atomic.Uint64 {
		if link == "next" {
			return n.Next()
		}
		return n.Extra()
	}
	w := q.add(t, x)
	var last uint32
	q.tear(t, func(n []*arenakernel.Node) {
		v := word(n[0]).Load()
		last = uint32(v) + changes
		word(n[0]).Store(v>>32<<32 | uint64(last))
	})
	q.give(t).must(t)
	w.must(t)
	if k.hold != "" {
		x.do(t, k.give, "x", k.args...)
		q.holder.do(t, k.hold, "x", k.args...)
	}
	q.waits = nil
	q.add(t, x)
	q.tear(t, func(n []*arenakernel.Node) {
		passed := uint32(word(n[0]).Load()) - last
		require.True(t, passed > 0 && passed < 16, "%d changes of the link since the first wait", int32(passed))
	})
}
