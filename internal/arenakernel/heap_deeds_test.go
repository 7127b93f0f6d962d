//go:build linux && crashpoint

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A deed is an action of a participant that passes crash points. A deed also says which of its effects remain
// if the participant dies at such a point: usually none.
type deed struct {
	prepare func(t *testing.T, survivor, victim *Arena) Offset
	do      func(victim *Arena, prepared Offset)
	points  []string

	wordPtr, objects, nodes, records int // how many more raw blocks, objects and so on than before the deed
}

var deeds = map[string]deed{
	"alloc": {
		do:     func(a *Arena, _ Offset) { a.Alloc(100, 0) },
		points: []string{"arena.alloc.claimed", "arena.alloc.before_publish"},
	},
	"alloc, old chunk": {
		prepare: func(t *testing.T, a, _ *Arena) Offset { return mustAlloc(t, a, 100, 0) },
		do:      func(a *Arena, _ Offset) { a.Alloc(100, 0) },
		points:  []string{"arena.block.before_claim", "arena.block.claimed"},
	},
	"alloc, fresh chunk": {
		do:     func(a *Arena, _ Offset) { a.Alloc(20000, 0) },
		points: []string{"arena.chunk.claimed", "arena.chunk.backed", "arena.chunk.before_slab"},
	},
	"span": {
		do: func(a *Arena, _ Offset) { a.Alloc(4*chunkSize, 0) },
		points: []string{
			"arena.span.claiming", "arena.span.claiming:4", "arena.chunk.backed:3", "arena.span.claimed",
			"arena.span.headed", "arena.span.headed:3", "arena.span.headed:4", "arena.alloc.before_publish",
		},
	},
	"free": {
		prepare: func(t *testing.T, a, _ *Arena) Offset { return mustAlloc(t, a, 100, 0) },
		do:      func(v *Arena, off Offset) { v.Free(off) },
		points:  []string{"arena.free.before_clear"},
		wordPtr: -1,
	},
	"free span": {
		prepare: func(t *testing.T, a, _ *Arena) Offset { return mustAlloc(t, a, 4*chunkSize, 0) },
		do:      func(v *Arena, off Offset) { v.Free(off) },
		points:  []string{"arena.free.before_clear", "arena.span.dismantling", "arena.span.dismantling:3"},
		wordPtr: -1,
	},
	"sweep": {
		prepare: func(t *testing.T, a, _ *Arena) Offset {
			a.Free(mustAlloc(t, a, 6000, 0))
			return 0
		},
		do:     func(a *Arena, _ Offset) { a.sweep(1, roomOfAll) },
		points: []string{"arena.sweep.begun", "arena.sweep.blocked", "arena.sweep.before_free"},
	},
	"create": {
		do:     func(a *Arena, _ Offset) { a.OpenObject(spec("new")) },
		points: []string{"arena.object.before_place", "arena.object.placed", "arena.object.before_commit"},
	},
	"create, committed": {
		do:      func(a *Arena, _ Offset) { a.OpenObject(spec("new")) },
		points:  []string{"arena.object.committed"},
		objects: 1,
	},
	"create, anonymous": {
		do:     func(a *Arena, _ Offset) { a.OpenObject(spec("")) },
		points: []string{"arena.object.before_publish"},
	},
	"open": {
		prepare: makeNew,
		do:      func(a *Arena, _ Offset) { a.OpenObject(spec("new")) },
		points:  []string{"arena.object.found", "arena.object.entered", "arena.object.bit_set", "arena.object.opened"},
	},
	"open, being deleted": {
		prepare: func(t *testing.T, a, b *Arena) Offset {
			makeNew(t, a, b)
			stopDeleting(b, "new")
			return 0
		},
		do:     func(a *Arena, _ Offset) { a.OpenObject(spec("new")) },
		points: []string{"arena.object.cancelling"},
	},
	"delete": {
		prepare: makeNew,
		do:      func(a *Arena, _ Offset) { a.Delete("new") },
		points:  []string{"arena.delete.before_mark", "arena.delete.marked", "arena.delete.before_decide"},
	},
	"delete, decided": {
		prepare: makeNew,
		do:      func(a *Arena, _ Offset) { a.Delete("new") },
		points:  []string{"arena.delete.decided", "arena.delete.freeing", "arena.delete.unlisted", "arena.delete.nodes_freed", "arena.node.freeing", "arena.node.reset"},
		objects: -1,
		nodes:   -1,
	},
	"delete, anonymous": {
		prepare: func(t *testing.T, a, _ *Arena) Offset {
			o, _, err := a.OpenObject(spec(""))
			require.NoError(t, err)
			a.CloseObject(o)
			return o.Offset
		},
		do:      func(v *Arena, off Offset) { v.DeleteObject(Object{Offset: off}) },
		points:  []string{"arena.delete.decided", "arena.delete.freeing"},
		objects: -1,
	},
	"slot record": {
		prepare: makeNew,
		do:      recordOfNew,
		points:  []string{"arena.slotrecord.claimed", "arena.slotrecord.before_push"},
	},
	"slot record, pushed": {
		prepare: makeNew,
		do:      recordOfNew,
		points:  []string{"arena.slotrecord.pushed"},
		records: 1,
	},
	"slot record, pushed before another one": {
		prepare: withRecords,
		do:      recordOfNew,
		points:  []string{"arena.slotrecord.pushed"},
		records: 1,
	},
	"delete, with a slot record": {
		prepare: withRecords,
		do:      func(a *Arena, _ Offset) { a.Delete("new") },
		points:  []string{"arena.delete.marked"},
	},
	"delete, with slot records, decided": {
		prepare: withRecords,
		do:      func(a *Arena, _ Offset) { a.Delete("new") },
		points: []string{
			"arena.delete.decided", "arena.delete.freeing", "arena.delete.unlisted",
			"arena.slotrecord.freeing", "arena.slotrecord.freeing:2", "arena.slotrecord.freeing:3", "arena.delete.nodes_freed",
		},
		objects: -1,
		nodes:   -1,
		records: -3,
	},
	"node": {
		do:     func(a *Arena, _ Offset) { a.ClaimNode() },
		points: []string{"arena.node.claimed", "arena.node.owned"},
	},
	"free node": {
		prepare: func(t *testing.T, _, v *Arena) Offset {
			off, err := v.ClaimNode()
			require.NoError(t, err)
			return off
		},
		do:     func(v *Arena, off Offset) { v.freeNode(off) },
		points: []string{"arena.node.freeing", "arena.node.reset"},
		nodes:  -1,
	},
	"poller node": {
		prepare: makeNew,
		do:      pollerOfNew,
		points:  []string{"arena.poller.before_push"},
	},
	"poller node, pushed": {
		prepare: makeNew,
		do:      pollerOfNew,
		points:  []string{"arena.poller.pushed"},
		nodes:   1,
	},
	"poller node, taken": {
		prepare: func(t *testing.T, a, v *Arena) Offset {
			off := makeNew(t, a, v)
			require.True(t, a.ReleasePollerNode(off))
			return off
		},
		do:     pollerOfNew,
		points: []string{"arena.poller.before_take", "arena.poller.taken"},
	},
	"poller node, released": {
		prepare: func(t *testing.T, a, v *Arena) Offset {
			makeNew(t, a, v)
			o, _, err := v.OpenObject(spec("new"))
			require.NoError(t, err)
			off, err := v.PollerNode(o, v.u64(o.Body), anyNode)
			require.NoError(t, err)
			return off
		},
		do:     func(v *Arena, off Offset) { v.ReleasePollerNode(off) },
		points: []string{"arena.poller.retired"},
	},
}

// makeNew makes the object "new" with one poller node. No participant has the object open
// afterwards.
func makeNew(t *testing.T, a, _ *Arena) Offset {
	o, _, err := a.OpenObject(spec("new"))
	require.NoError(t, err)
	off, err := a.PollerNode(o, a.u64(o.Body), anyNode)
	require.NoError(t, err)
	a.CloseObject(o)
	return off
}

// recordOfNew opens the object "new" and makes this participant's slot record of it.
func recordOfNew(a *Arena, _ Offset) {
	o, _, _ := a.OpenObject(spec("new"))
	a.SlotRecord(o, 100)
}

// withRecords makes the object "new" with the slot records of three participants that have left
// since.
func withRecords(t *testing.T, a, v *Arena) Offset {
	off := makeNew(t, a, v)
	o, _, err := a.OpenObject(spec("new"))
	require.NoError(t, err)
	for slot := 5; slot <= 7; slot++ {
		_, err := a.pushRecord(o.Offset, slot, 100, 0, nil)
		require.NoError(t, err)
	}
	a.CloseObject(o)
	return off
}

// stopDeleting leaves an object in the state that it has while a process that deletes it is
// stopped.
func stopDeleting(a *Arena, name string) {
	o, _, _ := a.OpenObject(spec(name))
	a.CloseObject(o)
	a.u32(o.Offset + objState).Store(uint32(makeObject(objectDeleting, a.self)))
}

func pollerOfNew(a *Arena, _ Offset) {
	o, _, _ := a.OpenObject(spec("new"))
	a.PollerNode(o, a.u64(o.Body), anyNode)
}

// run prepares the deed d, and then lets the participant v do it. The parameter at says at which crash point v stops,
// and at which hit of this point. The result is the statistics of the heap before the deed.
func (d deed) run(t *testing.T, a, v *Arena, at string) (before AllocStats) {
	var off Offset
	if d.prepare != nil {
		off = d.prepare(t, a, v)
	}
	before = a.Stats()
	point, n := pointOf(at)
	require.True(t, abandon(point, n, func() { d.do(v, off) }), "the point was not hit")
	return before
}
