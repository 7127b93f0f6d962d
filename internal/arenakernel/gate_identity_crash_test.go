//go:build crashpoint && linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// recorded returns the labels of the participants whose deaths are recorded, once for each ID.
func recorded(t *testing.T, ta *testArena) (labels []string) {
	p := ta.peek(t)
	told := map[ParticipantID]bool{}
	for n := range p.u64(hdrDeathRecordsTotal).Load() {
		id, name, ok := p.readDeathRecord(deathRecordsOfDead, n)
		require.True(t, ok, "record %d", n)
		if !told[name] {
			labels = append(labels, id.Label)
		}
		told[name] = true
	}
	return labels
}

// TestSlotThatIsGivenUpHasOneDeath: a process is stopped while it reaps a dead participant, so a
// joiner that has taken the slot gives it back. When the stopped process continues, it finishes the
// reap. The death is recorded only once.
func TestSlotThatIsGivenUpHasOneDeath(t *testing.T) {
	for _, point := range []string{"arena.finish.taken", "arena.record.numbered", "arena.finish.recorded"} {
		t.Run(point, func(t *testing.T) {
			ta := newTestArena(t, 2)
			v, r := ta.join(t, "victim"), ta.join(t, "reaper")
			require.Equal(t, 1, v.self.Slot())
			r.must(t, order{Do: "arm to stop", Text: point})
			r.Stop(t)
			v.Signal(t, unix.SIGKILL)
			v.WaitSignal(t, unix.SIGKILL)
			k := ta.start(t)
			k.must(t, order{Do: "arm to stop", Text: "arena.inherit.reaper"})
			k.Send(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
			k.AwaitStop(t)
			r.Cont(t) // r reaps: k has stored its own ID as that of the reaper, but this ID is not current yet
			r.AwaitStop(t)
			k.Cont(t)
			var ans answer
			k.Recv(t, &ans)
			require.Contains(t, ans.Is, "no space", "%s", dumpWords(ta.path()))
			r.Cont(t)
			p := ta.peek(t)
			p.label = ta.path()
			pollFor(t, p, func() bool { return p.slotState(1).phase() == phaseFree })
			require.Equal(t, []string{"victim"}, recorded(t, ta), "%s", dumpWords(ta.path()))
			r.close(t)
		})
	}
}

// TestDeathOfAnHeirIsNotThatOfItsPredecessor: a joiner takes over the slot of a dead participant
// and dies before it has finished the reap. The death record of the joiner must not report the
// death of its predecessor again.
func TestDeathOfAnHeirIsNotThatOfItsPredecessor(t *testing.T) {
	for _, point := range []string{"arena.inherit.taken", "arena.inherit.recorded", "arena.inherit.repaired", "arena.inherit.woken", "arena.inherit.reclaimed"} {
		t.Run(point, func(t *testing.T) {
			ta := twoDead(t)
			h := ta.start(t)
			h.must(t, order{Do: "arm", Text: point})
			opts := ta.opts
			opts.Label = "heir"
			h.die(order{Do: "open", Arena: ta.name, Opts: &opts})
			h.WaitSignal(t, unix.SIGKILL)
			label := "heir"
			if point == "arena.inherit.taken" { // the joiner has not described itself yet
				label = ""
			}
			require.NoError(t, beginWith(t, ta, false, "other", "victim", label).Close())
			require.NoError(t, beginWith(t, ta, true).Close())
		})
	}
}

// TestDeathsOfHeirsInARowAreRecorded: two joiners die one after the other, each just after it has
// taken over the slot of a dead participant. All three deaths must be recorded.
func TestDeathsOfHeirsInARowAreRecorded(t *testing.T) {
	ta := twoDead(t)
	for range 2 {
		h := ta.start(t)
		h.must(t, order{Do: "arm", Text: "arena.inherit.taken"})
		opts := ta.opts
		opts.Label = "heir"
		h.die(order{Do: "open", Arena: ta.name, Opts: &opts})
		h.WaitSignal(t, unix.SIGKILL)
	}
	require.NoError(t, beginWith(t, ta, false, "other", "victim", "", "").Close())
	require.NoError(t, beginWith(t, ta, true).Close())
}

// TestDeathThatAFirstRecordsIsNotToldAgain: a joiner is stopped just after it has taken over the
// slot of a dead participant. The first participant of an epoch records the death of that
// participant. Then the joiner is killed. The next epoch must get only the death of the joiner, and
// must be clean.
func TestDeathThatAFirstRecordsIsNotToldAgain(t *testing.T) {
	ta := twoDead(t)
	h := ta.start(t)
	h.must(t, order{Do: "arm to stop", Text: "arena.inherit.taken"})
	opts := ta.opts
	opts.Label = "heir"
	h.Send(order{Do: "open", Arena: ta.name, Opts: &opts})
	h.AwaitStop(t)
	require.NoError(t, beginWith(t, ta, false, "other", "victim").Close())
	h.Signal(t, unix.SIGKILL)
	h.WaitSignal(t, unix.SIGKILL)
	require.NoError(t, beginWith(t, ta, true, "").Close())
}

// TestDeathOfAJoinerBeforeItsDescriptionLeavesACleanArena: a joiner takes a free slot whose last
// participant had been admitted, and dies before it has described itself. The joiner had not been
// admitted, so the epoch must be clean.
func TestDeathOfAJoinerBeforeItsDescriptionLeavesACleanArena(t *testing.T) {
	ta := newTestArena(t, 2)
	before := ta.join(t, "before")
	i, g := before.self.Slot(), before.self.Generation()
	before.close(t)
	p := ta.peek(t)
	require.EqualValues(t, admissionIn, p.u32(p.slot(i)+slotAdmission).Load())
	require.True(t, p.casSlot(i, makeSlotWord(phaseFree, g), makeSlotWord(phaseJoining, g+1)|heldByte))
	require.NoError(t, beginWith(t, ta, true, "").Close())
}

// TestStoppedHeirDoesNotBearTheNameOfItsPredecessor: a joiner is stopped just after it has taken
// over the slot of a dead participant. Other processes must not mistake the joiner for its
// predecessor.
func TestStoppedHeirDoesNotBearTheNameOfItsPredecessor(t *testing.T) {
	ta := twoDead(t)
	h := ta.start(t)
	h.must(t, order{Do: "arm to stop", Text: "arena.inherit.taken"})
	opts := ta.opts
	opts.Label = "heir"
	h.Send(order{Do: "open", Arena: ta.name, Opts: &opts})
	h.AwaitStop(t)
	joining := 0
	for p := range ta.peek(t).Participants() {
		if p.State == phaseJoining.String() {
			joining++
			require.Empty(t, p.Label)
			require.Zero(t, p.PID)
			require.True(t, p.Died.IsZero())
		}
	}
	require.Equal(t, 1, joining, "%s", dumpWords(ta.path()))
}
