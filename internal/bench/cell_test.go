//go:build linux

package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestShortDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 100: "100ns", 1500: "1.5us", time.Minute: "1m", time.Hour: "1h", 90 * time.Second: "1m30s", 10 * time.Minute: "10m",
	} {
		require.Equal(t, want, ShortDuration(d))
	}
}

func TestArenaNames(t *testing.T) {
	for dir, want := range map[string]string{"": "", "/dev/shm": "dev:shm", "/": ":", "/a b/c=d/é": "a:b:c:d::"} {
		require.Equal(t, want, ArenaName(dir), dir)
	}
}
