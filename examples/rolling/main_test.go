//go:build linux

package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRolling(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, roll(&out))
	require.Equal(t, `all are of version 1
member 0 is of version 2
member 1 was killed, and is of version 2
member 0 is of version 1 again
member 0 is of version 2
member 2 is of version 2, as all are
720 jobs, none lost
`, out.String())
}
