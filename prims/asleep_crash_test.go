//go:build linux && crashpoint

package prims_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// asleep returns when all waits in the queues of the object sleep in the kernel. After that, each of them needs a
// wake.
func asleep(t *testing.T, a *arena.Arena, name string) {
	t.Helper()
	o, err := objectNamed(a, name)
	require.NoError(t, err)
	eventually(t, "asleep", func() string { return words(a) }, func() bool {
		return !slices.ContainsFunc((*arenakernel.Arena)(a).WaitsOf(o), func(w arenakernel.Wait) bool { return w.How == arenakernel.WaitAwake })
	})
}
