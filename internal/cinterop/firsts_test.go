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

// runFirsts runs a verb of firsts.c. SIGALRM ends a verb that hangs.
func runFirsts(t *testing.T, verb, name string) {
	t.Helper()
	out, err := exec.Command(program(t, "firsts.c"), verb, name).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// A joiner is stopped while it takes over the slot of a dead participant. A C program that then becomes the first
// participant of an epoch does the repairs that the joiner has not done.
func TestFirstInCRepairsWhatAStoppedHeirHasNot(t *testing.T) {
	runFirsts(t, "heir", emptyArena(t))
}

// emptyArena makes an arena with two slots, and no process is in it.
func emptyArena(t *testing.T) (name string) {
	name = unusedName(t)
	a, err := arena.Create(name, &arena.Options{Size: 2 << 20, MaxParticipants: 2})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	return name
}

// The first participant of an epoch, a C program, does not wait for a joiner that was stopped while it reaped. It
// learns of each death once, and does not change objects whose kind it does not know.
func TestFirstInCReapsTheDead(t *testing.T) {
	for _, verb := range []string{"reap", "pending", "closing", "twice", "opened", "heirs", "given up", "dying", "overwritten", "waiting", "version"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel() // these verbs wait for seconds
			out, err := exec.Command(program(t, "firstreap.c"), verb, emptyArena(t)).CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
}

// A process in C learns that the file of its arena was removed.
func TestOnDetachedInC(t *testing.T) { runFirsts(t, "detached", emptyArena(t)) }

// The first participant of an epoch, in C, makes usable again what a death has made unusable.
func TestRecoverAllInC(t *testing.T) { runFirsts(t, "recover", emptyArena(t)) }

// runRecover runs a verb of recover.c. SIGALRM ends a verb that hangs.
func runRecover(t *testing.T, verb string) {
	t.Helper()
	name := unusedName(t)
	a, err := arena.Create(name, &arena.Options{Size: 8 << 20, MaxParticipants: 8})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	out, err := exec.Command(program(t, "recover.c"), verb, name).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// shmsync_recover_all locks no healthy object, so a process that dies at any point of it leaves healthy objects
// healthy.
func TestRecoverAllInCLocksNothingThatIsHealthy(t *testing.T) { runRecover(t, "healthy") }

// If repair sets a Future whose producer has died, that result stays.
func TestRecoverAllInCKeepsWhatRepairHasSet(t *testing.T) { runRecover(t, "kept") }

// shmsync_recover_all returns an error if a peer has overwritten an object, and if memory ran out.
func TestRecoverAllInCReportsDamage(t *testing.T) { runRecover(t, "damage") }

// A process in C removes only the file that it has checked, and leaves no other file behind if it dies.
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
