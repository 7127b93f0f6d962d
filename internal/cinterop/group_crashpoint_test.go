//go:build linux && crashpoint

package cinterop

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var goPoint = regexp.MustCompile(`crashpoint\.Register\("([^"]+)"\)`)

// goPoints returns the crash points of the Go side.
func goPoints(t *testing.T) (names []string) {
	for _, dir := range []string{"prims", "internal/park"} {
		files, err := filepath.Glob(filepath.Join("..", "..", dir, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			src, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range goPoint.FindAllStringSubmatch(string(src), -1) {
				names = append(names, m[1])
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// A Go process is killed at each of its crash points. Only C processes are left to reap it.
func TestGroupCrashGo(t *testing.T) {
	all, died := goPoints(t), 0
	for _, k := range groups {
		t.Run(k.kind, func(t *testing.T) {
			for _, point := range all {
				if !hasPrefix(k.points, point) {
					continue
				}
				t.Run(point, func(t *testing.T) {
					langs := [3]string{"go", "c", "c"}
					at := fmt.Sprintf("SHMSYNC_CRASHPOINT=%s:%d", point, 1+rand.IntN(3))
					if k.run(t, langs, dieAsTold, at) || k.run(t, langs, dieAlone, "SHMSYNC_CRASHPOINT="+point) {
						died++
					}
				})
			}
		})
	}
	t.Logf("died at %d points", died)
	if died == 0 {
		t.Error("nobody died")
	}
}
