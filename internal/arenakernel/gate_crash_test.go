//go:build crashpoint && linux

package arenakernel

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/shm"
)

func init() {
	agentOrders["remove"] = func(s *agent, o order, a *answer) error { return Remove(o.Arena) }
	agentOrders["take renameat2 away"] = func(s *agent, o order, a *answer) error {
		renameat2 = func(int, string, int, string, uint) error { return unix.EINVAL }
		return nil
	}
	agentOrders["fail as first"] = func(s *agent, o order, a *answer) error {
		o.Opts.OnFirst = func(*Arena, Epoch) error { return errors.New(o.Text) }
		_, err := Open(o.Arena, o.Opts)
		return err
	}
}

// claimantDies kills a process at the given crash point, while it claims an epoch. The next process
// begins an epoch if and only if no participant is in the arena.
func claimantDies(t *testing.T, point string) {
	ta := newTestArena(t, 4)
	var s *remote
	v := ta.start(t)
	do := order{Do: "open", Arena: ta.name, Opts: &ta.opts}
	number := uint64(1)
	switch point {
	case "arena.gate.admitted":
		s = ta.join(t, "survivor")
	case "arena.gate.opened":
		number = 2
	case "arena.remove.judged":
		ta.join(t, "before").close(t)
		number = 2
		do.Opts = &Options{Size: 2 * ta.opts.Size, Recreate: RecreateIncompatible}
	case "arena.remove.checked", "arena.remove.placed", "arena.remove.renamed", "arena.remove.unlinked", "arena.remove.marked":
		ta.join(t, "before").close(t)
		do = order{Do: "remove", Arena: ta.name}
		if point == "arena.remove.placed" {
			v.must(t, order{Do: "take renameat2 away"})
		}
		if point == "arena.remove.checked" || point == "arena.remove.placed" {
			number = 2
		}
	}
	v.must(t, order{Do: "arm", Text: point})
	v.die(do)
	v.WaitSignal(t, unix.SIGKILL)
	opts, first := ta.opts, 0
	opts.OnFirst = func(_ *Arena, e Epoch) error {
		first++
		require.Equal(t, number, e.Number)
		changed := point == "arena.gate.claimed" || point == "arena.gate.begun" || point == "arena.gate.opened"
		require.Equal(t, !changed, e.Clean)
		return nil
	}
	a, err := Open(ta.name, &opts)
	require.NoError(t, err)
	require.Equal(t, PathThere, a.PathState())
	if s != nil {
		require.Zero(t, first)
		s.close(t)
	} else {
		require.Equal(t, 1, first)
	}
	require.ErrorIs(t, Remove(ta.name), syscall.EBUSY)
	require.NoError(t, a.Close())
	require.NoError(t, Remove(ta.name))
	require.ErrorIs(t, Remove(ta.name), fs.ErrNotExist)
	left, err := filepath.Glob(filepath.Join(shm.Dir, "."+ta.name+"*"))
	require.NoError(t, err)
	require.Empty(t, left, "the next creator removes what a dead remover left")
}

// TestStopAtTheGate: a stopped joiner delays no other process if a participant is in the arena. If no participant is
// in, and the stopped joiner is beginning an epoch, other processes have to wait. The error of an Open with a context
// then names the process for which it waited.
func TestStopAtTheGate(t *testing.T) {
	for _, point := range []string{"arena.enter.live", "arena.gate.admitted", "arena.gate.preparing", "arena.gate.opened"} {
		t.Run(point, func(t *testing.T) {
			ta := newTestArena(t, 4)
			var s *remote
			if point == "arena.gate.admitted" {
				s = ta.join(t, "survivor")
			}
			v := ta.start(t)
			v.must(t, order{Do: "arm to stop", Text: point})
			v.Send(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
			v.AwaitStop(t)
			first := 0
			opts := ta.opts
			opts.OnFirst = func(*Arena, Epoch) error { first++; return nil }
			a, err := Open(ta.name, &opts)
			require.NoError(t, err)
			if point == "arena.enter.live" || point == "arena.gate.preparing" {
				require.Equal(t, 1, first)
			} else {
				require.Zero(t, first)
			}
			b, err := Attach(ta.name, nil)
			require.NoError(t, err)
			require.NoError(t, b.Close())
			if s != nil {
				s.close(t)
			}
			require.NoError(t, a.Close())
			v.Cont(t)
			var ans answer
			v.Recv(t, &ans)
			require.Empty(t, ans.Err)
			v.close(t)
		})
	}
	for _, point := range []string{"arena.gate.taken", "arena.gate.claiming", "arena.gate.visited", "arena.gate.claimed", "arena.gate.begun"} {
		t.Run(point, func(t *testing.T) {
			ta := newTestArena(t, 4)
			ta.opts.Label = "claimant"
			v := ta.start(t)
			v.must(t, order{Do: "arm to stop", Text: point})
			v.Send(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
			v.AwaitStop(t)
			// On a busy machine, the context may end before the call reaches the gate. The loop
			// retries with a longer timeout.
			for limit := 20 * time.Millisecond; ; limit *= 2 {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				_, err := OpenContext(ctx, ta.name, nil)
				cancel()
				require.ErrorIs(t, err, context.DeadlineExceeded)
				if point == "arena.gate.taken" || strings.Contains(err.Error(), "claimant") {
					break
				}
				require.Less(t, limit, bound(), "%v", err)
			}
			v.Cont(t)
			var ans answer
			v.Recv(t, &ans)
			require.Empty(t, ans.Err)
			a, err := Open(ta.name, nil)
			require.NoError(t, err)
			require.NoError(t, a.Close())
			v.close(t)
		})
	}
}

// TestStopAndRemove: a joiner is stopped while its arena is removed. When it continues, it joins
// the new arena.
func TestStopAndRemove(t *testing.T) {
	ta := newTestArena(t, 4)
	v := ta.start(t)
	v.must(t, order{Do: "arm to stop", Text: "arena.enter.live"})
	v.Send(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
	v.AwaitStop(t)
	require.NoError(t, Remove(ta.name))
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	v.Cont(t)
	var ans answer
	v.Recv(t, &ans)
	require.Empty(t, ans.Err)
	err = Remove(ta.name)
	require.True(t, errors.Is(err, syscall.EBUSY))
	require.NoError(t, a.Close())
	require.ErrorIs(t, Remove(ta.name), syscall.EBUSY)
	v.close(t)
	require.NoError(t, Remove(ta.name))
}

// TestDeathOfAJoinerAfterAReboot: the file of an arena was written back before a reboot. After the
// reboot, a joiner is killed before it is admitted. Other processes can still open the file.
func TestDeathOfAJoinerAfterAReboot(t *testing.T) {
	for _, point := range []string{"arena.enter.live", "arena.gate.taken", "arena.gate.claimed"} {
		t.Run(point, func(t *testing.T) {
			ta := newTestArena(t, 4)
			path := newDiskArena(t, &ta.opts)
			afterReboot(t, path)
			v := ta.start(t)
			v.must(t, order{Do: "arm", Text: point})
			v.die(order{Do: "open", Arena: path, Opts: &ta.opts})
			v.WaitSignal(t, unix.SIGKILL)
			a, err := Open(path, &ta.opts)
			require.NoError(t, err)
			require.NoError(t, a.Close())
		})
	}
}

// TestFirstThatFailsKeepsTheGateUntilItHasLeft: a first participant whose OnFirst has failed keeps
// the gate until it has left, so that the next first participant is alone in the arena.
func TestFirstThatFailsKeepsTheGateUntilItHasLeft(t *testing.T) {
	ta := newTestArena(t, 4)
	ta.opts.Label = "claimant"
	v := ta.start(t)
	v.must(t, order{Do: "arm to stop", Text: "arena.close.leaving"})
	v.Send(order{Do: "fail as first", Arena: ta.name, Opts: &ta.opts, Text: "no reason"})
	v.AwaitStop(t)
	opts, first := ta.opts, 0
	opts.OnFirst = func(*Arena, Epoch) error { first++; return nil }
	// On a busy machine, the context may end before the call reaches the gate.
	for limit := 20 * time.Millisecond; ; limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := OpenContext(ctx, ta.name, &opts)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, first)
		if strings.Contains(err.Error(), "claimant") {
			break
		}
		require.Less(t, limit, bound(), "%v", err)
	}
	v.Cont(t)
	var ans answer
	v.Recv(t, &ans)
	require.Contains(t, ans.Err, "no reason")
	a, err := Open(ta.name, &opts)
	require.NoError(t, err)
	require.Equal(t, 1, first)
	require.NoError(t, a.Close())
}

// TestDeathsOutliveAFirstThatDies: if a first participant dies before its epoch is open, OnFirst of
// the next first participant gets the same deaths.
func TestDeathsOutliveAFirstThatDies(t *testing.T) {
	for _, point := range []string{"arena.gate.claimed", "arena.gate.begun"} {
		t.Run(point, func(t *testing.T) {
			ta := newTestArena(t, 4)
			d := ta.join(t, "worker")
			d.Signal(t, unix.SIGKILL)
			d.WaitSignal(t, unix.SIGKILL)
			v := ta.start(t)
			v.must(t, order{Do: "arm", Text: point})
			v.die(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
			v.WaitSignal(t, unix.SIGKILL)
			opts := ta.opts
			opts.OnFirst = func(_ *Arena, e Epoch) error {
				require.Contains(t, labels(e.Dead), "worker")
				return nil
			}
			a, err := Open(ta.name, &opts)
			require.NoError(t, err)
			require.NoError(t, a.Close())
		})
	}
}

// TestDeathOfAJoinerLeavesTheArenaClean: a joiner is killed before its Open returns. The arena
// stays clean unless that joiner had begun an epoch.
func TestDeathOfAJoinerLeavesTheArenaClean(t *testing.T) {
	for point, clean := range map[string]bool{
		"arena.enter.joining": true, "arena.enter.live": true, "arena.gate.visited": true, "arena.gate.claimed": false,
	} {
		t.Run(point, func(t *testing.T) {
			ta := newTestArena(t, 4)
			ta.join(t, "before").close(t)
			v := ta.start(t)
			v.must(t, order{Do: "arm", Text: point})
			v.die(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
			v.WaitSignal(t, unix.SIGKILL)
			opts := ta.opts
			opts.OnFirst = func(_ *Arena, e Epoch) error {
				require.Equal(t, clean, e.Clean)
				require.Len(t, e.Dead, 1)
				return nil
			}
			a, err := Open(ta.name, &opts)
			require.NoError(t, err)
			require.NoError(t, a.Close())
		})
	}
}

// TestDeathsOutliveAFirstThatFails: a first participant whose OnFirst fails is killed while it leaves. OnFirst of the
// next first participant gets the same deaths, each once, and the same number. A tool that repairs an arena without
// participants relies on this.
func TestDeathsOutliveAFirstThatFails(t *testing.T) {
	for _, point := range []string{"arena.close.leaving", "arena.close.repaired", "arena.close.reclaimed", "arena.close.unregistered", "arena.close.freed"} {
		t.Run(point, func(t *testing.T) {
			ta := newTestArena(t, 4)
			d := ta.join(t, "worker")
			d.Signal(t, unix.SIGKILL)
			d.WaitSignal(t, unix.SIGKILL)
			opts := ta.opts
			opts.Label = "tool"
			for range 2 {
				v := ta.start(t)
				v.must(t, order{Do: "arm", Text: point})
				v.die(order{Do: "fail as first", Arena: ta.name, Opts: &opts, Text: "no reason"})
				v.WaitSignal(t, unix.SIGKILL)
			}
			var got Epoch
			next := ta.opts
			next.OnFirst = func(_ *Arena, e Epoch) error { got = e; return nil }
			a, err := Open(ta.name, &next)
			require.NoError(t, err)
			require.NoError(t, a.Close())
			require.EqualValues(t, 2, got.Number)
			require.False(t, got.Clean)
			dead := slices.DeleteFunc(labels(got.Dead), func(label string) bool { return label == "tool" })
			require.Equal(t, []string{"worker"}, dead)
			a, err = Open(ta.name, &next)
			require.NoError(t, err)
			require.NoError(t, a.Close())
			require.EqualValues(t, 3, got.Number)
			require.True(t, got.Clean)
			require.Empty(t, got.Dead)
		})
	}
}
