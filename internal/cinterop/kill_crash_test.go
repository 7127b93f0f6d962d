//go:build linux && crashpoint

package cinterop

import (
	"os"
	"strings"
	"testing"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

// A Go program is killed at each point that its locks pass, among programs of both
// languages.
func TestKillGo(t *testing.T) {
	cAgent(t)
	only := os.Getenv("SHMSYNC_TEST_POINT")
	for _, point := range crashpoint.All() {
		mine := strings.HasPrefix(point, "mutex.lock.") || strings.HasPrefix(point, "mutex.unlock.") || strings.HasPrefix(point, "park.wake.") ||
			strings.HasPrefix(point, "arena.reap.") || strings.HasPrefix(point, "arena.finish.") || strings.HasPrefix(point, "arena.delete.") ||
			strings.HasPrefix(point, "arena.span.") || strings.HasPrefix(point, "arena.block.")
		if !mine || only != "" && !strings.HasPrefix(point, only) || testing.Short() && !strings.HasPrefix(point, "mutex.") {
			continue
		}
		t.Run(point, func(t *testing.T) {
			if !killAt(t, "go", point) && !seldom[point] {
				t.Error("the victim never passed it")
			}
		})
	}
}
