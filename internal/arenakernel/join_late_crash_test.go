//go:build crashpoint && linux

package arenakernel

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
)

// TestLateJoinerLeavesTheSlotAlone checks that a joiner that has lost its slot to another participant does not write
// to the slot. The joiner is stopped while it takes the slot, and another participant gets the slot meanwhile. When
// the joiner continues, it must change neither the capabilities in the slot nor an alive word.
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
				require.True(t, p.casSlot(2, w, w.with(phaseFree)), "the test gives the joiner up, as a watcher does after a while")
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
			require.NotEmpty(t, survivor.try(t, order{Do: "lock", Text: "held"}).Err, "the lock must still be held")
			another.Kill(t)
			survivor.must(t, order{Do: "locked", Text: "held"})
			survivor.must(t, order{Do: "lock", Text: "held"})
		})
	}
}

// TestLateHeirLeavesTheCapabilitiesAlone: a joiner without a byte lock is stopped after it has
// become the reaper of a dead participant. A second process frees the slot, and a third process
// takes it. When the joiner continues, it must not change the capabilities that the third process
// has stored.
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
	require.True(t, p.casSlot(2, w, w.with(phaseFree)), "the test frees the slot, as a reaper does")
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

// TestLateLookLeavesTheNextJoinerAlive checks that no process records a living joiner as gone because the byte lock
// of an earlier joiner was free. Two joiners get the same generation in one slot, because the first joiner gives the
// slot of a dead participant back. A third process reads the slot of the first joiner, finds the byte lock free, and
// is stopped. The third process continues when the second joiner has the slot.
func TestLateLookLeavesTheNextJoinerAlive(t *testing.T) {
	ta := newTestArena(t, 3)
	survivor, victim, reaper := ta.join(t, "survivor"), ta.join(t, "victim"), ta.join(t, "reaper")
	p := ta.peek(t)
	survivor.Stop(t)
	reaper.Stop(t)
	victim.Kill(t)
	ta.awaitUnlocked(t, 2)
	open := func(r *remote) { r.Send(order{Do: "open", Arena: ta.name, Opts: &ta.opts}) }

	first := ta.start(t)
	first.must(t, order{Do: "arm to stop", Text: "arena.inherit.reaper"})
	first.must(t, order{Do: "arm to stop", Text: "arena.inherit.taken"})
	open(first)
	first.AwaitStop(t)
	dead := p.slotState(2)
	p.u32(p.slot(2) + slotReaper).Store(uint32(reaper.self)) // as if another process had become the reaper meanwhile
	first.Cont(t)
	first.AwaitStop(t)
	joining := p.slotState(2)
	require.Equal(t, phaseJoining, joining.phase())

	late := ta.start(t)
	late.must(t, order{Do: "arm to stop", Text: "arena.inherit.looking", N: 2})
	late.must(t, order{Do: "arm to stop", Text: "arena.inherit.unlocked", N: 1})
	open(late)
	late.AwaitStop(t)
	first.Cont(t)
	var a answer
	first.Recv(t, &a)
	require.NotEmpty(t, a.Err, "the reaper is stopped")
	require.Equal(t, dead, p.slotState(2))
	late.Cont(t)
	late.AwaitStop(t)

	p.u32(p.slot(2) + slotReaper).Store(0)
	second := ta.start(t)
	second.must(t, order{Do: "arm to stop", Text: "arena.inherit.recorded"})
	open(second)
	second.AwaitStop(t)
	require.Equal(t, joining, p.slotState(2), "the second joiner has the generation of the first one")
	late.Cont(t)
	late.Recv(t, &a)
	require.NotEmpty(t, a.Err, "all slots are taken")
	require.False(t, p.foundGone(2, joining), "the second joiner is alive")
}

// TestStoppedJoinerWithoutAByteKeepsItsSlot checks that a joiner without a byte lock keeps its slot while it is
// stopped for long. The joiner is stopped after it has put the alive words on its robust list. From then on, other
// processes take the slot only if the kernel has marked an alive word. If the joiner is killed, the next joiner gets
// the slot at once.
func TestStoppedJoinerWithoutAByteKeepsItsSlot(t *testing.T) {
	for _, point := range []string{"arena.enter.joining", "arena.enter.registered"} {
		for _, with := range []string{"", "ofd"} {
			ta := newTestArena(t, 1)
			ta.join(t, "first").close(t)
			late := ta.start(t, without("ofd"))
			late.must(t, order{Do: "arm to stop", Text: point})
			open := order{Do: "open", Arena: ta.name, Opts: &ta.opts}
			late.Send(open)
			late.AwaitStop(t)
			p := ta.peek(t)
			w := p.slotState(1)
			require.Equal(t, phaseJoining, w.phase())
			age := func() { // makes the join look as if it had begun long ago
				p.u64(p.slot(1) + slotJoined).Store(uint64(time.Now().Add(-joinTimeout - time.Second).UnixNano()))
			}
			age()
			another := ta.start(t, without(with))
			require.NotEmpty(t, another.try(t, open).Err, "the joiner is alive")
			require.Equal(t, w, p.slotState(1))
			late.Cont(t)
			var a answer
			late.Recv(t, &a)
			require.Empty(t, a.Err)
			late.close(t)

			late.must(t, order{Do: "arm to stop", Text: point})
			late.Send(open)
			late.AwaitStop(t)
			late.Kill(t)
			late.Wait(t)
			require.Empty(t, another.try(t, open).Err)
			another.must(t, order{Do: "use", Text: "x"})
			another.close(t)
		}
	}
}

// TestLateJoinerWithoutAByteLeavesTheSlotAlone checks that a joiner without a byte lock changes no word of a slot
// that it has lost. The joiner is stopped after it has taken the slot, and before it has put the alive words on its
// robust list. After joinTimeout, another joiner takes the slot.
func TestLateJoinerWithoutAByteLeavesTheSlotAlone(t *testing.T) {
	ta := newTestArena(t, 1)
	ta.join(t, "first").close(t)
	late := ta.start(t, without("ofd"))
	late.must(t, order{Do: "arm to stop", Text: "arena.enter.taken"})
	open := order{Do: "open", Arena: ta.name, Opts: &ta.opts}
	late.Send(open)
	late.AwaitStop(t)
	p := ta.peek(t)
	p.u64(p.slot(1) + slotJoined).Store(uint64(time.Now().Add(-joinTimeout - time.Second).UnixNano()))
	another := ta.join(t, "another", without("ofd"))
	another.must(t, order{Do: "fenced"})
	another.must(t, order{Do: "identified"})
	another.Stop(t)
	slot := p.slice(p.slot(1), slotStride)
	before := bytes.Clone(slot)
	late.Cont(t)
	var a answer
	late.Recv(t, &a)
	require.NotEmpty(t, a.Err, "the slot is taken")
	require.Equal(t, before, slot)
}

// TestJoinerWithoutByteDiesInTheOnlySlot checks that the only slot of an arena becomes free after the death of
// a joiner without a byte lock. The joiner dies before it has put the alive words on its robust list, so its
// death leaves no mark. After a time limit, the next joiner can take the slot.
func TestJoinerWithoutByteDiesInTheOnlySlot(t *testing.T) {
	for _, with := range []string{"", "ofd"} {
		ta := newTestArena(t, 1)
		ta.join(t, "first").close(t)
		victim := ta.start(t, without("ofd"))
		victim.must(t, order{Do: "arm", Text: "arena.enter.taken"})
		victim.die(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
		victim.WaitSignal(t, unix.SIGKILL)
		p := ta.peek(t)
		w := p.slotState(1)
		require.Equal(t, phaseJoining, w.phase())
		next := ta.start(t, without(with))
		require.NotEmpty(t, next.try(t, order{Do: "open", Arena: ta.name, Opts: &ta.opts}).Err, "the joiner may still be alive")
		p.u64(p.slot(1) + slotJoined).Store(uint64(time.Now().Add(-joinTimeout - time.Second).UnixNano()))
		caps := p.u32(p.slot(1) + slotCaps)
		was := caps.Swap(makeCaps(0, w.generation()-1))
		require.NotEmpty(t, next.try(t, order{Do: "open", Arena: ta.name, Opts: &ta.opts}).Err, "the time in the slot may be that of an earlier joiner")
		caps.Store(was)
		require.Empty(t, next.try(t, order{Do: "open", Arena: ta.name, Opts: &ta.opts}).Err)
		require.True(t, p.slotState(1).is(phaseLive, w.generation()+1))
		next.close(t)
	}
}

// TestJoinerWithoutAByteSeesThatItHasLostItsSlot checks that a joiner without a byte lock does not go on in a
// slot that other processes have marked dead or freed. The joiner is stopped immediately before it stores the
// bit capRobust, which says that the kernel marks its death. This store succeeds, because no other participant
// has taken the slot. Then the joiner must find that it has lost the slot, and take the slot again.
func TestJoinerWithoutAByteSeesThatItHasLostItsSlot(t *testing.T) {
	for _, lost := range []phase{phaseFree, phaseDead} {
		ta := newTestArena(t, 1)
		ta.join(t, "first").close(t)
		late := ta.start(t, without("ofd"))
		late.must(t, order{Do: "arm to stop", Text: "arena.enter.caps_checked", N: 2})
		late.must(t, order{Do: "arm to stop", Text: "arena.enter.joining"})
		late.Send(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
		late.AwaitStop(t)
		p := ta.peek(t)
		w := p.slotState(1)
		require.Equal(t, phaseJoining, w.phase())
		require.True(t, p.casSlot(1, w, w.with(lost)), "the test gives the joiner up, as a watcher does after a while")
		late.Cont(t)
		late.AwaitStop(t)
		require.True(t, p.slotState(1).is(phaseJoining, w.generation()+1), "%v", p.slotState(1))
		late.Cont(t)
		var a answer
		late.Recv(t, &a)
		require.Empty(t, a.Err)
		late.must(t, order{Do: "use", Text: "x"})
	}
}

// TestSlotOfALivingJoinerIsFreedAfterItWasDeclaredDead checks that the slot of a living joiner becomes free if
// another process marks the slot dead by mistake. The joiner has no byte lock, and takes longer than joinTimeout. The
// other process is stopped immediately before it marks the slot. Meanwhile the joiner sets capRobust, which says that
// the kernel marks its death. But the kernel marks no alive word, because the joiner lives. The Open of the joiner
// must fail, and the next joiner must get the slot.
func TestSlotOfALivingJoinerIsFreedAfterItWasDeclaredDead(t *testing.T) {
	ta := newTestArena(t, 1)
	ta.join(t, "first").close(t)
	late := ta.start(t, without("ofd"))
	late.must(t, order{Do: "arm to stop", Text: "arena.enter.caps_checked", N: 2})
	late.must(t, order{Do: "arm to stop", Text: "arena.enter.joining"})
	open := order{Do: "open", Arena: ta.name, Opts: &ta.opts}
	late.Send(open)
	late.AwaitStop(t)
	p := ta.peek(t)
	p.u64(p.slot(1) + slotJoined).Store(uint64(time.Now().Add(-joinTimeout - time.Second).UnixNano()))
	another := ta.start(t)
	another.must(t, order{Do: "arm to stop", Text: "arena.reap.fenced"})
	another.Send(open)
	another.AwaitStop(t)
	late.Cont(t)
	late.AwaitStop(t)
	require.Equal(t, phaseJoining, p.slotState(1).phase())
	another.Cont(t)
	var a answer
	another.Recv(t, &a)
	require.NotEmpty(t, a.Err, "the joiner may still write to the slot")
	require.Equal(t, phaseDead, p.slotState(1).phase())
	late.Cont(t)
	late.Recv(t, &a)
	require.Contains(t, a.Err, "a peer took the slot away")
	require.NotContains(t, a.Err, shmsync.ErrCorrupt.Error(), "with RecreateCorrupt, Open would replace the arena")
	require.Empty(t, another.try(t, open).Err)
	another.must(t, order{Do: "use", Text: "x"})
}

// TestUnprotectedJoinerTakesNoSlot: a process that has neither a robust list nor a byte lock does not take a slot,
// because nothing would show whether it is alive.
func TestUnprotectedJoinerTakesNoSlot(t *testing.T) {
	ta := newTestArena(t, 1)
	ta.join(t, "first").close(t)
	p := ta.peek(t)
	before := bytes.Clone(p.slice(p.slot(1), slotStride))
	late := ta.start(t, without("ofd,robust"))
	require.Contains(t, late.try(t, order{Do: "open", Arena: ta.name, Opts: &ta.opts}).Err, "neither robust lists nor byte locks")
	require.Equal(t, before, p.slice(p.slot(1), slotStride))
}
