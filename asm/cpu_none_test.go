//go:build !(linux && amd64 && gc && !noasm)

package asm

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCPUIsNotKnown(t *testing.T) {
	cpu, node, ok := CPU()
	require.False(t, ok)
	require.Zero(t, cpu)
	require.Zero(t, node)
}
