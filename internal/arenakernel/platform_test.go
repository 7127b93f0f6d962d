//go:build linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/shm"
)

// TestJoinIsRefusedOnOtherPlatforms: a program with another word size or byte order cannot use the
// layout of an arena. Each call that joins returns an error and leaves no file behind.
func TestJoinIsRefusedOnOtherPlatforms(t *testing.T) {
	for name, other := range map[string]func(){
		"32 bits":    func() { programBits = 32 },
		"big-endian": func() { programLittleEndian = false },
	} {
		t.Run(name, func(t *testing.T) {
			bits, little := programBits, programLittleEndian
			t.Cleanup(func() { programBits, programLittleEndian = bits, little })
			other()
			file := t.TempDir() + "/arena"
			for _, join := range []func(string, *Options) (*Arena, error){Open, Create, Attach} {
				_, err := join(file, nil)
				require.ErrorIs(t, err, shmsync.ErrNotSupported)
				require.ErrorContains(t, err, "64-bit little-endian")
				require.NoFileExists(t, file)
			}
			seg, err := shm.CreateMemfd("other", 1<<20, nil, nil)
			require.NoError(t, err)
			require.ErrorIs(t, Format(seg, nil), shmsync.ErrNotSupported)
			_, err = FromSegment(seg, nil)
			require.ErrorIs(t, err, shmsync.ErrNotSupported)
		})
	}
}
