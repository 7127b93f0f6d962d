//go:build crashpoint && linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// A joiner is stopped on its way into a slot, which gets another participant meanwhile. The joiner goes on, and writes
// nothing into the slot: neither that its own process has a byte lock or none, nor the thread that the kernel marks.
func TestLateJoinerLeavesTheSlotAlone(t *testing.T) {
	for name, c := range map[string]struct {
		point           string
		joiner, another []proctest.Option
		giveUp          bool
	}{
		"with a byte lock, before it takes the slot": {"arena.enter.locked", nil, []proctest.Option{without("ofd")}, false},
		"without, before it is live":                 {"arena.enter.registered", []proctest.Option{without("ofd")}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			ta := newTestArena(t, 4)
			survivor := ta.join(t, "survivor")
			ta.join(t, "former").close(t)
			late := ta.start(t, c.joiner...)
			late.must(t, order{Do: "arm to stop", Text: c.point})
			o := ta.opts
			o.Label = "late"
			late.Send(order{Do: "open", Arena: ta.name, Opts: &o})
			late.AwaitStop(t)
			p := ta.peek(t)
			if c.giveUp {
				w := p.slotState(2)
				require.Equal(t, phaseJoining, w.phase())
				require.True(t, p.casSlot(2, w, w.with(phaseFree)), "as a watcher does after a while")
			}
			another := ta.join(t, "another", c.another...)
			another.must(t, order{Do: "lock", Text: "held"})
			require.Equal(t, 2, another.self.Slot())
			state, alive := p.slotState(2), p.u32(p.aliveWord(2, 0)).Load()
			caps := p.slotCaps(2) &^ capFence // which comes later
			late.Cont(t)
			var a answer
			late.Recv(t, &a)
			require.Equal(t, c.giveUp, a.Err != "", "%v", a.Err)
			require.Equal(t, state, p.slotState(2))
			require.Equal(t, caps, p.slotCaps(2)&^capFence)
			require.Equal(t, alive, p.u32(p.aliveWord(2, 0)).Load())
			require.NotEmpty(t, survivor.try(t, order{Do: "lock", Text: "held"}).Err, "it is held")
			another.Kill(t)
			survivor.must(t, order{Do: "lock", Text: "held"})
		})
	}
}

// A joiner without a byte lock is stopped when it has become the reaper of a dead participant. Another process frees the
// slot, and a third one takes it. The joiner leaves the capabilities of that one alone.
func TestLateHeirLeavesTheCapabilitiesAlone(t *testing.T) {
	ta := newTestArena(t, 2)
	survivor, victim := ta.join(t, "survivor"), ta.join(t, "victim")
	survivor.Stop(t)
	victim.Kill(t)
	ta.awaitUnlocked(t, 2)
	heir := ta.start(t, without("ofd"))
	heir.must(t, order{Do: "arm to stop", Text: "arena.inherit.reaper"})
	heir.Send(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
	heir.AwaitStop(t)
	p := ta.peek(t)
	w := p.slotState(2)
	require.Equal(t, phaseDead, w.phase())
	require.True(t, p.casSlot(2, w, w.with(phaseFree)), "as a reaper does")
	another := ta.join(t, "another")
	require.Equal(t, 2, another.self.Slot())
	caps := p.slotCaps(2) &^ capFence
	require.NotZero(t, caps&capOFD)
	heir.Cont(t)
	var a answer
	heir.Recv(t, &a)
	require.Equal(t, caps, p.slotCaps(2)&^capFence)
	survivor.Cont(t)
}
