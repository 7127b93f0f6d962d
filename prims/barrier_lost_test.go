//go:build linux

package prims_test

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	// This process is a party. Its child has the file of the arena open. So when this process is dead, it is not gone
	// until the child dies, too.
	proctest.Register("barrier/lingering", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, &arena.Options{KernelIO: arena.KernelIOAsynchronous})
		if err != nil {
			c.Fatal(err)
		}
		b, err := prims.AttachBarrier(a, "b", nil)
		if err != nil {
			c.Fatal(err)
		}
		b.Register(1)
		for !a.Fenced() { // when Fenced returns true, peers can see that this process is dead before it is gone
			<-after(time.Millisecond)
		}
		heir := exec.Command("sleep", "1000")
		if heir.ExtraFiles, err = filesOf(name); err != nil {
			c.Fatal(err)
		}
		if err := heir.Start(); err != nil {
			c.Fatal(err)
		}
		c.Say(heir.Process.Pid)
		c.Await()
	})
}

// breakBarrier starts a process that registers, and kills it, so that the present phase breaks.
func breakBarrier(t *testing.T, a *arena.Arena, b *prims.Barrier, label string) prims.BarrierPhase {
	t.Helper()
	victim := gateActor(t, a, label)
	victim.must(t, order{Op: "barrier.join", Object: "plain", N: 1})
	phase := b.State().Phase
	victim.proc.Kill(t)
	require.ErrorIs(t, b.WaitContext(t.Context(), phase), shmsync.ErrOwnerDead)
	return phase
}

// TestBarrierWaitReportsEveryBrokenPhase checks that a wait for a broken phase fails, even if later phases have
// broken or ended since.
func TestBarrierWaitReportsEveryBrokenPhase(t *testing.T) {
	a := newArena(t, nil)
	b := newBarrier(t, a, "plain", 2, nil)
	x := gateActor(t, a, "x")
	broken := map[prims.BarrierPhase]string{}
	for i := range 3 {
		label := fmt.Sprint("victim ", i)
		broken[breakBarrier(t, a, b, label)] = label
		require.True(t, b.ResetTo(2))
		b.Arrive(2) // this phase ends without an error
	}
	for phase := range b.State().Phase {
		err := b.WaitContext(t.Context(), phase)
		ans := x.do(t, order{Op: "barrier.waitctx", Object: "plain", Token: uint64(phase)})
		if label, ok := broken[phase]; ok {
			require.ErrorIs(t, err, shmsync.ErrOwnerDead, "phase %d", phase)
			require.Equal(t, label, identityOf(err).Label)
			require.ErrorContains(t, err, "1 party was lost")
			gateRefused(t, ans, label)
		} else {
			require.NoError(t, err, "phase %d", phase)
			gateSmooth(t, ans)
		}
	}
}

// TestBarrierWaitForgottenPhase checks that a wait for an old phase fails if the record of a later broken phase has
// replaced the record of the old phase, because the old phase may have broken, too.
func TestBarrierWaitForgottenPhase(t *testing.T) {
	a := newArena(t, nil)
	b := newBarrier(t, a, "plain", 1, nil)
	for b.State().Phase < prims.BarrierBreaks {
		b.Arrive(1)
	}
	broken := breakBarrier(t, a, b, "victim")
	require.EqualValues(t, prims.BarrierBreaks, broken)
	require.True(t, b.ResetTo(1))
	err := b.WaitContext(t.Context(), 0)
	require.ErrorIs(t, err, shmsync.ErrOwnerDead)
	require.ErrorContains(t, err, "nobody knows how phase 0 ended")
	require.NoError(t, b.WaitContext(t.Context(), 1), "no later phase has replaced the record of phase 1")
}

// TestBarrierResetAfterSeveralDeaths checks that State reports, after several deaths, how many parties were lost and
// to which processes they belonged, and that the next phase after Reset expects only the other parties.
func TestBarrierResetAfterSeveralDeaths(t *testing.T) {
	a := newArena(t, nil)
	b := newBarrier(t, a, "plain", 6, nil)
	x, one, two := gateActor(t, a, "x"), gateActor(t, a, "one"), gateActor(t, a, "two")
	one.must(t, order{Op: "barrier.arrive", Object: "plain", N: 1})
	two.must(t, order{Op: "barrier.join", Object: "plain", N: 3})
	id := gateBlocked(t, a, x, b.Offset(), order{Op: "barrier.meet", Object: "plain"})
	for _, victim := range []*actor{one, two} {
		victim.proc.Kill(t)
	}
	gateRefused(t, x.wait(t, id), "two")
	alone(t, a, 2)
	err := b.ArriveAndWaitContext(t.Context())
	require.ErrorIs(t, err, shmsync.ErrOwnerDead)
	st := b.State()
	require.ErrorIs(t, st.Err, shmsync.ErrOwnerDead)
	require.EqualValues(t, 4, st.Lost)
	labels := []string{}
	for _, who := range st.Dead {
		labels = append(labels, who.Label)
	}
	require.ElementsMatch(t, []string{"one", "two"}, labels)
	require.True(t, b.Reset())
	require.Equal(t, prims.BarrierState{Phase: 1, Pending: 2, Expected: 2}, b.State())
	id = gateBlocked(t, a, x, b.Offset(), order{Op: "barrier.meet", Object: "plain"})
	b.ArriveAndWait()
	gateSmooth(t, x.wait(t, id))
	require.ErrorContains(t, b.WaitContext(t.Context(), 0), "4 parties were lost")
}

// TestBarrierLosesEveryPartyOfAProcess checks the death of a process that has two parties, one by an arrival and one
// by Register. Both parties are lost, and the next phase after Reset does not expect them.
func TestBarrierLosesEveryPartyOfAProcess(t *testing.T) {
	for what, steps := range map[string][]order{
		"arrives, registers":            {{Op: "barrier.arrive", N: 1}, {Op: "barrier.join", N: 1}},
		"registers, arrives, registers": {{Op: "barrier.join", N: 1}, {Op: "barrier.arrive", N: 1}, {Op: "barrier.join", N: 1}},
	} {
		t.Run(what, func(t *testing.T) {
			a := newArena(t, nil)
			b, victim := newBarrier(t, a, "b", 3, nil), gateActor(t, a, "victim")
			before := b.State()
			for _, o := range steps {
				o.Object = "b"
				victim.must(t, o)
			}
			registered := b.State().Expected - before.Expected
			victim.proc.Kill(t)
			require.ErrorIs(t, b.WaitContext(t.Context(), 0), shmsync.ErrOwnerDead)
			alone(t, a, 1)
			lost := b.State().Lost
			require.EqualValues(t, 2, lost, "%v", b)
			require.True(t, b.Reset())
			require.Equal(t, before.Expected+registered-lost, b.State().Expected)
		})
	}
}

// TestBarrierJoinDuringCompletion checks that a process that registers while another process runs the completion is a
// party of the next phase.
func TestBarrierJoinDuringCompletion(t *testing.T) {
	a := newArena(t, nil)
	b := newBarrier(t, a, "b", 1, nil)
	x, victim := gateActor(t, a, "x"), gateActor(t, a, "victim")
	x.must(t, order{Op: "block"})
	id := x.start(order{Op: "barrier.meet", Object: "b"})
	eventually(t, "it completes", b.String, func() bool { return b.State().Completer != nil })
	victim.must(t, order{Op: "barrier.join", Object: "b", N: 1})
	x.must(t, order{Op: "unblock"})
	gateSmooth(t, x.wait(t, id))
	require.EqualValues(t, 1, b.State().Phase)
	victim.proc.Kill(t)
	err := b.WaitContext(t.Context(), 1)
	require.ErrorIs(t, err, shmsync.ErrOwnerDead)
	require.Equal(t, "victim", identityOf(err).Label)
}

// completing makes x arrive n times at b, and returns when x runs the completion. The completion lasts until the
// order "unblock".
func completing(t *testing.T, b *prims.Barrier, x *actor, n int) (id int) {
	x.must(t, order{Op: "block"})
	id = x.start(order{Op: "barrier.arrive", Object: "b", N: n})
	eventually(t, "it completes", b.String, func() bool { return b.State().Completer != nil })
	return id
}

// TestBarrierDeathDuringCompletionLosesNoReplacedParty checks which parties are lost if a process, the victim, dies
// during a completion. The victim registers two parties and arrives once. Process x arrives in place of the second
// party, and runs the completion. When the victim dies, only the party with which the victim arrived is lost.
func TestBarrierDeathDuringCompletionLosesNoReplacedParty(t *testing.T) {
	a := newArena(t, nil)
	b := newBarrier(t, a, "b", 3, nil)
	x, victim := gateActor(t, a, "x"), gateActor(t, a, "victim")
	victim.must(t, order{Op: "barrier.join", Object: "b", N: 2})
	victim.must(t, order{Op: "barrier.arrive", Object: "b", N: 1})
	id := completing(t, b, x, 2)
	victim.proc.Kill(t)
	alone(t, a, 2)
	require.EqualValues(t, 1, b.State().Lost)
	x.must(t, order{Op: "unblock"})
	gateSmooth(t, x.wait(t, id))
	require.True(t, b.Reset())
	require.EqualValues(t, 2, b.State().Expected)
	x.must(t, order{Op: "barrier.arrive", Object: "b", N: 2})
	require.EqualValues(t, 3, b.State().Phase)
}

// TestBarrierDeathOfTheCompleterLosesNoReplacedParty is like TestBarrierDeathDuringCompletionLosesNoReplacedParty,
// but process x, which runs the completion, dies before the victim. Both parties of x are lost, also the party that x
// has in place of a party of the victim. When the victim dies, only the party with which the victim arrived is lost.
func TestBarrierDeathOfTheCompleterLosesNoReplacedParty(t *testing.T) {
	for _, reset := range []bool{false, true} {
		t.Run(fmt.Sprint("reset between the deaths ", reset), func(t *testing.T) {
			a := newArena(t, nil)
			b := newBarrier(t, a, "b", 4, nil)
			x, victim := gateActor(t, a, "x"), gateActor(t, a, "victim")
			b.Arrive(1)
			victim.must(t, order{Op: "barrier.join", Object: "b", N: 2})
			victim.must(t, order{Op: "barrier.arrive", Object: "b", N: 1})
			completing(t, b, x, 2)
			x.proc.Kill(t)
			require.ErrorIs(t, b.WaitContext(t.Context(), 0), shmsync.ErrOwnerDead)
			alone(t, a, 2)
			require.EqualValues(t, 2, b.State().Lost)
			if reset {
				require.True(t, b.Reset())
			}
			victim.proc.Kill(t)
			alone(t, a, 1)
			lost := int64(3)
			if reset {
				lost = 1
			}
			require.Equal(t, lost, b.State().Lost)
			require.True(t, b.Reset())
			require.EqualValues(t, 1, b.State().Expected)
		})
	}
}

// TestBarrierBeginsWhenTheDeadAreGone checks that Reset does not begin the next phase while a dead party is not gone,
// because the kernel may still write into the arena for that party. Each attempt of Reset checks this after it has
// read the commit word, because a party may have died since an earlier check.
func TestBarrierBeginsWhenTheDeadAreGone(t *testing.T) {
	a := newArena(t, nil)
	b := newBarrier(t, a, "b", 2, nil)
	dead := proctest.Start(t, "barrier/lingering", proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))
	var heir int
	dead.Recv(t, &heir)
	t.Cleanup(func() { syscall.Kill(heir, syscall.SIGKILL) })
	dead.Signal(t, os.Kill)
	dead.WaitSignal(t, syscall.SIGKILL)
	require.ErrorIs(t, b.WaitContext(t.Context(), 0), shmsync.ErrOwnerDead)
	done, err := b.Begin()
	require.NoError(t, err)
	require.False(t, done, "the next phase began although a dead process may still write")
	require.NoError(t, syscall.Kill(heir, syscall.SIGKILL))
	require.True(t, b.Reset())
	require.EqualValues(t, 1, b.State().Expected)
}
