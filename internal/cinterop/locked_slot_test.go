//go:build linux

package cinterop

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
)

// A C program is stopped after it has locked the byte of a dead participant's slot, and before it has taken the
// slot. Meanwhile a joiner of either language begins an epoch. The joiner does not take the byte lock for a sign
// that the dead process still writes.
func TestStopWithTheByteLockOfADeadSlotInC(t *testing.T) {
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
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
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
