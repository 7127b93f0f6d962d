//go:build linux && crashpoint

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// TestDeathAtEachPointInTheHeadroom: a participant dies while it allocates or frees in the headroom of a
// full arena. Its reaper gives everything back, and the next participant can use the headroom.
func TestDeathAtEachPointInTheHeadroom(t *testing.T) {
	record := func(v *Arena) {
		o, _, err := v.OpenObject(spec("new"))
		if err == nil {
			v.SlotRecord(o, 100)
		}
	}
	node := func(v *Arena) { v.ClaimNode() }
	for name, d := range map[string]struct {
		before func(a *Arena) // in the full arena
		do     func(v *Arena)
		points []string
		stay   uint64 // slot records that stay
	}{
		"record, fresh chunk": {nil, record, []string{
			"arena.chunk.claimed", "arena.chunk.backed", "arena.chunk.before_slab", "arena.alloc.claimed",
			"arena.slotrecord.claimed", "arena.slotrecord.before_push",
		}, 0},
		"record, pushed": {nil, record, []string{"arena.slotrecord.pushed"}, 1},
		"record, old chunk": {record, record, []string{
			"arena.block.before_claim", "arena.block.claimed", "arena.alloc.claimed", "arena.slotrecord.before_push",
		}, 0},
		"node, fresh chunk": {nil, node, []string{
			"arena.chunk.claimed", "arena.chunk.backed", "arena.chunk.before_slab", "arena.node.claimed", "arena.node.owned",
		}, 0},
		"node, old chunk": {node, node, []string{"arena.block.before_claim", "arena.block.claimed", "arena.node.owned"}, 0},
		"sweep": {func(a *Arena) {
			off, err := a.ClaimHeadroom(100)
			if err == nil {
				a.UnclaimBlock(off)
			}
		}, func(v *Arena) { v.sweep(1, roomOfRecords) }, []string{
			"arena.sweep.begun", "arena.sweep.blocked", "arena.sweep.before_free",
		}, 0},
	} {
		for _, at := range d.points {
			t.Run(name+"/"+at, func(t *testing.T) {
				p := newNeighbours(3<<20, 8)
				a, b, v := p.join(1), p.join(2), p.join(3)
				o, _ := withSlotRecords(t, "new", a)
				fillCommon(t, a)
				untouched := a.Stats()
				require.Equal(t, untouched.Headroom, untouched.FreeHeadroom)
				if d.before != nil {
					d.before(b)
				}
				before := a.Stats()
				point, n := pointOf(at)
				require.True(t, abandon(point, n, func() { d.do(v) }), "the point was not hit")
				p.reap(a, v.self)
				requireForgotten(t, a, v.self)
				requireSound(t, a)
				after := a.Stats()
				require.Zero(t, after.Claimed)
				require.Equal(t, before.SlotRecords+d.stay, after.SlotRecords)
				require.Equal(t, before.Nodes, after.Nodes)
				require.Equal(t, before.BytesUsed+d.stay*uint64(classSizes[classHeadroom]), after.BytesUsed)

				x := p.join(4)
				record(x)
				node(x)
				require.Equal(t, before.SlotRecords+d.stay+1, a.Stats().SlotRecords)
				require.Equal(t, before.Nodes+1, a.Stats().Nodes)
				_, err := x.Alloc(64, 0)
				require.ErrorIs(t, err, shmsync.ErrNoSpace)
				p.reap(a, x.self)
				p.reap(a, b.self)
				a.CloseObject(o)
				require.NoError(t, a.Delete("new"))
				sweepAll(a)
				require.Equal(t, untouched.Headroom-p.geo.headroom.nodes, a.Stats().FreeHeadroom, "the whole headroom is free, except the chunks for wait nodes")
				requireSound(t, a)
			})
		}
	}
}

// TestHeadroomChunkBeingPrepared checks what happens while a participant is stopped that makes a slab of the only
// chunk for wait nodes. Another participant that needs a node gets an error after a short time. It gets a node when
// the stopped participant has gone on, or was reaped.
func TestHeadroomChunkBeingPrepared(t *testing.T) {
	for _, dies := range []bool{false, true} {
		p := newNeighbours(3<<20, 8)
		a, v, x := p.join(1), p.join(2), p.join(3)
		fillCommon(t, a)
		stopped, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error)
		crashpoint.ArmFunc("arena.chunk.claimed", 1, func() {
			close(stopped)
			<-goOn
		})
		go func() {
			_, err := v.ClaimNode()
			done <- err
		}()
		<-stopped
		_, err := x.ClaimNode()
		require.ErrorIs(t, err, shmsync.ErrNoSpace)
		if dies {
			p.reap(a, v.self)
		} else {
			close(goOn)
			require.NoError(t, <-done)
		}
		crashpoint.Disarm()
		_, err = x.ClaimNode()
		require.NoError(t, err)
		requireSound(t, a)
	}
}
