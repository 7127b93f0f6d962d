//go:build linux

package cinterop

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// What docs/c-contract.md promises holds. A verb that hangs ends by SIGALRM.
func TestContract(t *testing.T) {
	for _, verb := range []string{"closed-handles", "closed-arena", "closed-in-use", "close-many", "errors"} {
		t.Run(verb, func(t *testing.T) {
			name := coreArena(t, 16<<20)
			out, err := exec.Command(program(t, "contract.c"), verb, name).CombinedOutput()
			require.NoError(t, err, "%s", out)
			sound(t, name)
		})
	}
}
