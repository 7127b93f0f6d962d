//go:build linux

package host

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A program that is translated detects this, even though the host's files describe a real CPU.
func TestTranslated(t *testing.T) {
	x86, arm := []byte("vendor_id\t: AuthenticAMD\nmodel name : x\n"), []byte("CPU implementer\t: 0x41\n")
	for _, c := range []struct {
		goarch, kernel string
		cpuinfo        []byte
		want           bool
	}{
		{"amd64", "x86_64", x86, false}, {"arm64", "aarch64", arm, false}, {"arm64", "x86_64", x86, true}, {"amd64", "aarch64", arm, true},
		{"arm64", "x86_64", arm, true}, // newer translators invent a /proc/cpuinfo
		{"amd64", "", x86, false}, {"arm64", "", arm, false}, {"arm64", "", x86, true}, {"amd64", "", arm, true}, {"arm64", "", nil, false},
		{"riscv64", "riscv64", nil, false},
	} {
		require.Equal(t, c.want, translated(c.goarch, c.kernel, c.cpuinfo), c)
	}
	require.True(t, Emulated(translatedOn("AMD EPYC")), "which keeps advice back")
	if isTranslated() {
		require.True(t, Emulated(Read(nil).CPU))
	}
}
