//go:build linux

package main

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/shm"
)

// diskBlocks returns how much memory a segment uses.
func diskBlocks(t testing.TB, name string) int64 {
	t.Helper()
	st, err := os.Stat(shm.Dir + "/" + name)
	require.NoError(t, err)
	return st.Sys().(*syscall.Stat_t).Blocks
}
