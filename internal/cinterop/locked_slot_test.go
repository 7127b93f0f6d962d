//go:build linux

package cinterop

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
)

// A C program is stopped after it has locked the byte of a dead participant's slot, and before it has taken the slot.
// Meanwhile a joiner of either language begins an epoch. The joiner does not conclude from the byte lock that the dead
// process still writes.
func TestStopWithTheByteLockOfADeadSlotInC(t *testing.T) {
	t.Parallel()
	for _, lang := range []string{"c", "go"} {
		t.Run(lang, func(t *testing.T) {
			name := unusedName(t)
			made, err := arena.Create(name, &arena.Options{Size: 2 << 20, MaxParticipants: 2})
			require.NoError(t, err)
			other := newAgent(t, "c", name, "other", asynchronousIO)
			require.NoError(t, made.Close())
			victim := newAgent(t, "c", name, "victim", asynchronousIO) // in slot 1, which joiners try first
			victim.do(t, "mutex.open", "m", 2)
			victim.do(t, "mutex.lock", "m")
			other.stop(t)
			victim.kill(t)
			other.kill(t)
			var out bytes.Buffer
			cmd := exec.Command(program(t, "core.c"), "open", name)
			cmd.Env = append(os.Environ(), "SHMSYNC_CRASHPOINT_STOP=arena.enter.locked")
			cmd.Stdout, cmd.Stderr = &out, &out
			require.NoError(t, cmd.Start())
			t.Cleanup(func() { cmd.Process.Kill() })
			(&agent{cmd: cmd, label: "the heir", arena: name}).awaitStop(t)
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			if lang == "c" {
				says, err := exec.CommandContext(ctx, program(t, "core.c"), "open", name).CombinedOutput()
				require.NoError(t, err, "%s", says)
				require.True(t, strings.HasPrefix(string(says), "0 "), "%s", says)
			} else {
				a, err := arena.AttachContext(ctx, name, nil)
				require.NoError(t, err)
				require.NoError(t, a.Close())
			}
			require.NoError(t, cmd.Process.Kill())
			cmd.Wait()
			sound(t, name)
		})
	}
}

// A C program that has no byte lock reaps a dead participant. It asks for the byte lock of that participant, and waits
// until the lock is free.
func TestReaperWithoutAByteLockInC(t *testing.T) {
	name := newArena(t)
	x := newAgent(t, cWithoutByteLock, name, "survivor")
	require.EqualValues(t, liveSlot, binary.LittleEndian.Uint32(slotIn(t, name, 1))&(7|heldByte), "it has no byte lock")
	h := hand{name: "mutex", open: verb("mutex.open", 2), take: verb("mutex.lock")}
	victim := h.dying(t, name, x)
	slot := slotIn(t, name, 2)
	eventually(t, "the victim is marked dead", name, func() bool { return slot[0]&7 == deadSlot })
	for range 20 {
		x.give(t, verb("mutex.trylock")).fails(t, syscall.EBUSY)
	}
	require.EqualValues(t, deadSlot, slot[0]&7)
	victim.in.Close()
	x.give(t, verb("mutex.lock", forever)).must(t)
	eventually(t, "the slot is free", name, slot.isFree)
}

// A C program without a byte lock is stopped for long while it joins. No other program takes its slot, because the slot
// says that the kernel marks the death of its participant. If the stopped program is killed, the next program gets the
// slot at once.
func TestStoppedJoinerWithoutAByteInC(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		for _, open := range []func(*testing.T, string) (string, bool){openCore, openGo} {
			name := unusedName(t)
			made, err := arena.Create(name, &arena.Options{Size: 1 << 20, MaxParticipants: 1})
			require.NoError(t, err)
			require.NoError(t, made.Close())
			var out bytes.Buffer
			cmd := exec.Command(program(t, "core.c"), "open", name)
			cmd.Env = append(os.Environ(), "SHMSYNC_DISABLE=ofd", "SHMSYNC_CRASHPOINT_STOP=arena.enter.joining")
			cmd.Stdout, cmd.Stderr = &out, &out
			require.NoError(t, cmd.Start())
			t.Cleanup(func() { cmd.Process.Kill() })
			(&agent{cmd: cmd, label: "the joiner", arena: name}).awaitStop(t)
			if killed {
				require.NoError(t, cmd.Process.Kill())
				cmd.Wait()
				says, ok := open(t, name)
				require.True(t, ok, says)
				sound(t, name)
				continue
			}
			slot := slotIn(t, name, 1)
			joined := slot[40:]
			binary.LittleEndian.PutUint64(joined, binary.LittleEndian.Uint64(joined)-11e9)
			says, ok := open(t, name)
			require.False(t, ok, says)
			require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
			require.NoError(t, cmd.Wait(), "%s", &out)
			require.True(t, strings.HasPrefix(out.String(), "0 "), "%s", &out)
			sound(t, name)
		}
	}
}

// A C program that has neither a robust list nor a byte lock does not take a slot, because nothing would show whether
// it is alive.
func TestUnprotectedJoinerTakesNoSlotInC(t *testing.T) {
	name := unusedName(t)
	made, err := arena.Create(name, &arena.Options{Size: 1 << 20, MaxParticipants: 1})
	require.NoError(t, err)
	require.NoError(t, made.Close())
	slot := slotIn(t, name, 1)
	before := bytes.Clone(slot)
	cmd := exec.Command(program(t, "core.c"), "open", name)
	cmd.Env = append(os.Environ(), "SHMSYNC_DISABLE=ofd,robust")
	out, _ := cmd.CombinedOutput()
	require.Contains(t, string(out), "neither robust lists nor byte locks")
	require.Equal(t, before, []byte(slot))
}

// A C program without a byte lock is stopped while it joins. Meanwhile another process marks the slot of the program
// dead, or frees the slot. If the slot does not say yet that the kernel marks the death of its participant, the program
// takes a slot again. Otherwise its open fails, and the next program gets the slot.
func TestJoinerWithoutAByteThatHasLostItsSlotInC(t *testing.T) {
	for _, c := range []struct {
		point string
		phase uint32
		joins bool
	}{{"arena.enter.caps_checked:2", 0, true}, {"arena.enter.caps_checked:2", deadSlot, true}, {"arena.enter.joining", deadSlot, false}} {
		name := unusedName(t)
		made, err := arena.Create(name, &arena.Options{Size: 1 << 20, MaxParticipants: 1})
		require.NoError(t, err)
		require.NoError(t, made.Close())
		var out bytes.Buffer
		cmd := exec.Command(program(t, "core.c"), "open", name)
		cmd.Env = append(os.Environ(), "SHMSYNC_DISABLE=ofd", "SHMSYNC_CRASHPOINT_STOP="+c.point)
		cmd.Stdout, cmd.Stderr = &out, &out
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill() })
		(&agent{cmd: cmd, label: "the joiner", arena: name}).awaitStop(t)
		slot := slotIn(t, name, 1)
		binary.LittleEndian.PutUint32(slot, binary.LittleEndian.Uint32(slot)&^7|c.phase)
		require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
		cmd.Wait()
		require.Equal(t, c.joins, strings.HasPrefix(out.String(), "0 "), "%v: %s", c, &out)
		for _, open := range []func(*testing.T, string) (string, bool){openCore, openGo} {
			says, ok := open(t, name)
			require.True(t, ok, "%v: %s", c, says)
		}
		sound(t, name)
	}
}
