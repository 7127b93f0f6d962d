//go:build linux

package cinterop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
)

// A thread that waits for a token far ahead announces a nearer token, and waits for the far token after that. No wake
// is lost if the counter passes the nearer token before or after the announcement.
func TestFarTokensInC(t *testing.T) {
	name := unusedName(t)
	a, err := arena.Create(name, &arena.Options{Size: 2 << 20, MaxParticipants: 4})
	require.NoError(t, err)
	defer a.Close()
	runC(t, "tokens.c", name)
}
