//go:build linux

package cinterop

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/shm"
)

// runFirsts runs a verb of firsts.c, which ends by SIGALRM where it hangs.
func runFirsts(t *testing.T, verb, name string) {
	t.Helper()
	out, err := exec.Command(program(t, "firsts.c"), verb, name).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// A joiner is stopped while it takes over the slot of a dead participant. A first participant in C
// repairs what the joiner has not repaired.
func TestFirstInCRepairsWhatAStoppedHeirHasNot(t *testing.T) {
	runFirsts(t, "heir", emptyArena(t))
}

// emptyArena makes an arena with two slots in which no process is.
func emptyArena(t *testing.T) (name string) {
	name = unusedName(t)
	a, err := arena.Create(name, &arena.Options{Size: 2 << 20, MaxParticipants: 2})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	return name
}

// The first participant of an epoch in C does not wait for a joiner that is stopped while it
// reaps. It learns of each death once, and leaves objects alone whose kind it does not know.
func TestFirstInCReapsTheDead(t *testing.T) {
	for _, verb := range []string{"reap", "pending", "closing", "twice", "opened", "heirs", "given up", "dying", "overwritten", "waiting", "version"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel() // they wait for seconds
			out, err := exec.Command(program(t, "firstreap.c"), verb, emptyArena(t)).CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
}

// A process in C is told that its arena's file was removed.
func TestOnDetachedInC(t *testing.T) { runFirsts(t, "detached", emptyArena(t)) }

// The first of an epoch in C makes everything usable that a death has made unusable.
func TestRecoverAllInC(t *testing.T) { runFirsts(t, "recover", emptyArena(t)) }

// runRecover runs a verb of recover.c, which ends by SIGALRM where it hangs.
func runRecover(t *testing.T, verb string) {
	t.Helper()
	name := unusedName(t)
	a, err := arena.Create(name, &arena.Options{Size: 8 << 20, MaxParticipants: 8})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	out, err := exec.Command(program(t, "recover.c"), verb, name).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// A shmsync_recover_all that dies at any point leaves healthy objects healthy: it locks none of them.
func TestRecoverAllInCLocksNothingThatIsHealthy(t *testing.T) { runRecover(t, "healthy") }

// The result stays that repair gives to a future whose producer has died.
func TestRecoverAllInCKeepsWhatRepairHasSet(t *testing.T) { runRecover(t, "kept") }

// shmsync_recover_all hides neither what a peer has overwritten nor that it had no memory.
func TestRecoverAllInCReportsDamage(t *testing.T) { runRecover(t, "damage") }

// A process in C removes only the file that it looked at, and leaves nothing behind when it dies.
func TestRemovalInC(t *testing.T) {
	for _, verb := range []string{"judged", "taken", "removed", "without bytes", "not new", "not whole", "foreign", "foreign without renameat2"} {
		t.Run(verb, func(t *testing.T) {
			name := emptyArena(t)
			runFirsts(t, verb, name)
			left, err := filepath.Glob(filepath.Join(shm.Dir, "*"+name+"*"))
			require.NoError(t, err)
			require.Equal(t, []string{filepath.Join(shm.Dir, name)}, left)
		})
	}
}
