//go:build linux

package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/examples/internal/ccbuild"
)

func TestCProducer(t *testing.T) {
	if _, err := ccbuild.Compiler(); err != nil {
		require.Empty(t, os.Getenv("SHMSYNC_NEED_CC"), err)
		t.Skipf("needs a C compiler: %v", err)
	}
	var out bytes.Buffer
	require.NoError(t, run(&out))
	require.Equal(t, "1000 samples from a C program, sum 249750\n", out.String())
}
