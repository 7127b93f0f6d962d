//go:build crashpoint && linux

package arenakernel

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
)

func init() {
	// "begin" opens the arena. Its answer lists the deaths that OnFirst got.
	agentOrders["begin"] = func(s *agent, o order, a *answer) (err error) {
		a.Text = "not first"
		o.Opts.OnFirst = func(_ *Arena, e Epoch) error {
			a.Text = fmt.Sprint(e.Number, e.Clean, labels(e.Dead))
			return nil
		}
		s.arena, err = Open(o.Arena, o.Opts)
		return err
	}
	agentOrders["open for a moment"] = func(s *agent, o order, a *answer) (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		s.arena, err = OpenContext(ctx, o.Arena, o.Opts)
		return err
	}
}

// reapPoints are crash points between the begin of a reap and the step that frees the slot.
var reapPoints = []string{
	"arena.reap.repaired", "arena.reap.woken", "arena.reap.handed_over",
	"arena.finish.taken", "arena.record.numbered", "arena.finish.recorded", "arena.finish.reclaimed",
}

// stopInAReap starts a process and stops it at the given crash point, while its Open reaps a
// participant that died with a lock held.
func stopInAReap(t *testing.T, ta *testArena, point string) (v *remote) {
	d := ta.join(t, "victim")
	d.must(t, order{Do: "lock", Text: "held"})
	d.Signal(t, unix.SIGKILL)
	d.WaitSignal(t, unix.SIGKILL)
	v = ta.start(t)
	v.must(t, order{Do: "arm to stop", Text: point})
	opts := ta.opts
	opts.Label = "stopped"
	v.Send(order{Do: "begin", Arena: ta.name, Opts: &opts})
	v.AwaitStop(t)
	return v
}

// beginWith opens the arena. It requires that this process begins an epoch, and that OnFirst gets
// exactly the given deaths.
func beginWith(t *testing.T, ta *testArena, clean bool, dead ...string) *Arena {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound())
	defer cancel()
	opts, firsts := ta.opts, 0
	opts.OnFirst = func(a *Arena, e Epoch) error {
		firsts++
		l, err := openTestLock(a, "held")
		require.NoError(t, err)
		require.True(t, l.tryLock(), "the lock is held by %v", ParticipantID(l.owner.Load()))
		l.owner.Store(0)
		require.ElementsMatch(t, dead, labels(e.Dead))
		require.Equal(t, clean, e.Clean)
		return nil
	}
	a, err := OpenContext(ctx, ta.name, &opts)
	require.NoError(t, err, "%s", dumpWords(ta.name))
	require.Equal(t, 1, firsts)
	return a
}

// TestStopInTheReapOfAFirst: a joiner is stopped while it reaps dead participants, before it begins
// an epoch. The joiner does not have the gate yet, so another process begins the epoch. That
// process must find everything repaired.
func TestStopInTheReapOfAFirst(t *testing.T) {
	for _, point := range reapPoints {
		t.Run(point, func(t *testing.T) {
			ta := newTestArena(t, 4)
			v := stopInAReap(t, ta, point)
			a := beginWith(t, ta, false, "victim")
			b, err := Attach(ta.name, nil)
			require.NoError(t, err)
			require.NoError(t, b.Close())
			v.Cont(t)
			var ans answer
			v.Recv(t, &ans)
			require.Empty(t, ans.Err)
			require.Equal(t, "not first", ans.Text)
			v.close(t)
			require.NoError(t, a.Check())
			require.NoError(t, a.Close())
			require.NoError(t, beginWith(t, ta, true).Close())
		})
	}
}

// TestReapThatEndsInALaterEpoch: a joiner is stopped while it reaps, and another process begins and
// ends an epoch. When the joiner continues, it begins the next epoch. It must not report the deaths
// that it had found, because they belong to the previous epoch.
func TestReapThatEndsInALaterEpoch(t *testing.T) {
	for _, point := range reapPoints {
		t.Run(point, func(t *testing.T) {
			ta := newTestArena(t, 4)
			v := stopInAReap(t, ta, point)
			require.NoError(t, beginWith(t, ta, false, "victim").Close())
			v.Cont(t)
			var ans answer
			v.Recv(t, &ans)
			require.Empty(t, ans.Err)
			require.Equal(t, "3 true []", ans.Text, "%s", dumpWords(ta.name))
			v.close(t)
			require.NoError(t, beginWith(t, ta, true).Close())
		})
	}
}

// TestStopInTheReapOfAPendingJoiner: a joiner dies before it was admitted, and the process that
// reaps it is stopped. The arena stays clean.
func TestStopInTheReapOfAPendingJoiner(t *testing.T) {
	for _, point := range []string{"arena.reap.repaired", "arena.finish.taken", "arena.record.numbered", "arena.finish.recorded"} {
		t.Run(point, func(t *testing.T) {
			ta := newTestArena(t, 4)
			ta.join(t, "before").close(t)
			p := ta.start(t)
			p.must(t, order{Do: "arm", Text: "arena.enter.live"})
			opts := ta.opts
			opts.Label = "pending"
			p.die(order{Do: "open", Arena: ta.name, Opts: &opts})
			p.WaitSignal(t, unix.SIGKILL)
			v := ta.start(t)
			v.must(t, order{Do: "arm to stop", Text: point})
			v.Send(order{Do: "begin", Arena: ta.name, Opts: &ta.opts})
			v.AwaitStop(t)
			a := beginWith(t, ta, true, "pending")
			v.Cont(t)
			var ans answer
			v.Recv(t, &ans)
			require.Empty(t, ans.Err)
			v.close(t)
			require.NoError(t, a.Close())
		})
	}
}

// TestFirstIsToldOfADeathInClose: a participant dies in Close, and the joiner that takes over its
// slot is stopped before it has recorded the death. The process that begins the next epoch must get
// this death.
func TestFirstIsToldOfADeathInClose(t *testing.T) {
	ta := newTestArena(t, 2)
	v, x := ta.join(t, "victim"), ta.join(t, "other")
	require.Equal(t, 1, v.self.Slot())
	x.Stop(t) // it reaps nobody
	v.must(t, order{Do: "arm", Text: "arena.close.unregistered"})
	v.die(order{Do: "close"})
	v.WaitSignal(t, unix.SIGKILL)
	x.Signal(t, unix.SIGKILL)
	x.WaitSignal(t, unix.SIGKILL)
	h := ta.start(t)
	h.must(t, order{Do: "arm to stop", Text: "arena.inherit.taken"})
	opts := ta.opts
	opts.Label = "heir"
	h.Send(order{Do: "begin", Arena: ta.name, Opts: &opts})
	h.AwaitStop(t)
	a := beginWith(t, ta, false, "other", "victim")
	h.Cont(t)
	var ans answer
	h.Recv(t, &ans)
	require.Empty(t, ans.Err)
	h.close(t)
	require.NoError(t, a.Close())
	require.NoError(t, beginWith(t, ta, true).Close())
}

// TestJoinerThatWaitsForTheGateReapsNobody: while another process has the gate, a joiner that waits
// does not check the slots. This keeps the wait cheap, because many joiners may wait for one
// OnFirst.
func TestJoinerThatWaitsForTheGateReapsNobody(t *testing.T) {
	ta := newTestArena(t, 4)
	d := ta.join(t, "victim")
	d.Signal(t, unix.SIGKILL)
	d.WaitSignal(t, unix.SIGKILL)
	f, err := os.OpenFile(ta.path(), os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	locked, err := shmsync.LockByte(f, gateByte)
	require.NoError(t, err)
	require.True(t, locked)
	v := ta.start(t)
	v.must(t, order{Do: "arm", Text: "arena.gate.preparing"})
	ans := v.try(t, order{Do: "open for a moment", Arena: ta.name, Opts: &ta.opts})
	require.Contains(t, ans.Err, context.DeadlineExceeded.Error())
	require.NoError(t, f.Close())
	v.die(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
	v.WaitSignal(t, unix.SIGKILL)
}
