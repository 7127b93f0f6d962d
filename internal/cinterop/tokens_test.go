//go:build linux

package cinterop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
)

// A thread waits for a token far ahead, and announces a nearer token in its place. The counter passes the announced
// token before or after the announcement.
func TestFarTokensInC(t *testing.T) {
	name := unusedName(t)
	a, err := arena.Create(name, &arena.Options{Size: 2 << 20, MaxParticipants: 4})
	require.NoError(t, err)
	defer a.Close()
	runC(t, "tokens.c", name)
}
