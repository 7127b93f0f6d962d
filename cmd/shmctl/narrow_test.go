//go:build linux

package main

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/diagnose"
)

// deadlocked brings two agents of an arena into a deadlock.
func deadlocked(t *testing.T, name string) (alice, bob *agent) {
	alice, bob = newAgent(t, name, "alice"), newAgent(t, name, "bob")
	alice.does("lock mutex", "ledger")
	bob.does("lock mutex", "journal")
	alice.begins("lock mutex", "journal")
	bob.begins("lock mutex", "ledger")
	awaitWaits(t, name, 2)
	return alice, bob
}

// The tables fit into a terminal of 80 columns, except for the format wide.
func TestTablesFitInto80Columns(t *testing.T) {
	name := testArena(t)
	alice, _ := deadlocked(t, name)
	freeze(t, alice) // a stopped holder has longer lines
	for _, args := range [][]string{{"ps", name}, {"ps", "--gone", name}, {"objects", name}, {"locks", name}, {"waits", name}, {"show", name, "ledger"}, {"du", name}} {
		_, out, _ := shmctl(args...)
		require.Contains(t, out, "  ", args)
		for line := range strings.SplitSeq(out, "\n") {
			sentence := strings.Contains(line, ": ") || strings.Contains(line, "→")
			require.True(t, sentence || utf8.RuneCountInString(line) <= 80, "%v: %q", args, line)
		}
	}
}

// On a terminal, a finding is wrapped between words, but its command stays on one line.
func TestFindingsAreWrapped(t *testing.T) {
	name := testArena(t)
	deadlocked(t, name)
	f := awaitFinding(t, diagnose.Deadlock, "waits", name)
	x := newTerminal(t, "-u NO_COLOR", "waits", "--watch=100ms", name)
	x.tmux("resize-window", "-x", "80", "-y", "24")
	words := strings.Fields("DEADLOCK: " + f.Text)
	var lines []string
	eventually(t, "wrapped lines", func() bool {
		lines = nil
		screen := strings.Split(x.shows("    $ "+f.Command+"\n"), "\n")
		for i, line := range screen {
			if strings.HasPrefix(line, "DEADLOCK: ") {
				for lines = append(lines, line); i+1 < len(screen) && strings.HasPrefix(screen[i+1], "  ") && !strings.HasPrefix(screen[i+1], "  →"); i++ {
					lines = append(lines, screen[i+1])
				}
			}
		}
		return len(lines) > 2 && slices.Equal(words, strings.Fields(strings.Join(lines, "\n")))
	})
}

// The holds of processes that are in a deadlock do not become findings of their own, however long they last.
func TestDeadlockIsTheOnlyFinding(t *testing.T) {
	name := testArena(t)
	deadlocked(t, name)
	awaitFinding(t, diagnose.Deadlock, "waits", "--older=1ms", name)
	_, d := shmctlJSON(t, "waits", "--older=1ms", name)
	require.Len(t, d.Findings, 1)
	require.Equal(t, diagnose.Deadlock, d.Findings[0].Kind)
}
