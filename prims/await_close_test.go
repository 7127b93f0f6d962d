//go:build linux

package prims_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/prims"
)

// TestWaitAllOfFutexesEndsWithTheArena: a process closes the arena while a goroutine waits for two
// Futexes. Close makes both waits fail. The wait that ends first must not make Close wait until the
// second wait has ended.
func TestWaitAllOfFutexesEndsWithTheArena(t *testing.T) {
	a := newArena(t, nil)
	f, err := prims.OpenFutex(a, "f", nil)
	require.NoError(t, err)
	g, err := prims.OpenFutex(a, "g", nil)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- prims.WaitAll(f.At(1), g.At(1)) }()
	eventually(t, "the wait has announced itself at both", func() string { return words(a) }, func() bool {
		return strings.Contains(f.String(), "announced") && strings.Contains(g.String(), "announced")
	})
	closed := make(chan error, 1)
	go func() { closed <- a.Close() }()
	for range 2 {
		select {
		case err := <-ended:
			require.ErrorIs(t, err, shmsync.ErrClosed)
		case err := <-closed:
			require.NoError(t, err)
		case <-after(timeout()):
			t.Fatal("WaitAll or Close has not returned")
		}
	}
}
