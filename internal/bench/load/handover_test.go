//go:build linux

package load

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
)

func TestHandoverKinds(t *testing.T) {
	places := map[int]cpuPlace{0: {0, 0}, 1: {0, 0}, 2: {2, 0}, 3: {3, 1}}
	for _, c := range []struct {
		from, to int32
		same     bool
		want     int
	}{{0, 0, true, bench.FromSelf}, {0, 0, false, bench.FromCPU}, {0, 1, false, bench.FromCache}, {1, 2, false, bench.FromNode}, {2, 3, false, bench.FromFar}, {-1, 3, false, bench.FromOther}, {-1, -1, true, bench.FromSelf}} {
		require.Equal(t, c.want, handoverOf(c.from, c.to, c.same, places), c)
	}
	require.Len(t, bench.HandoverKinds, bench.FromOther+1)

	sysfs := t.TempDir()
	write := func(name, text string) {
		file := filepath.Join(sysfs, "devices/system/cpu", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text+"\n"), 0o600))
	}
	write("cpu0/cache/index0/level", "1")
	write("cpu0/cache/index0/shared_cpu_list", "0")
	write("cpu0/cache/index3/level", "3")
	write("cpu0/cache/index3/shared_cpu_list", "0-1")
	write("cpu3/cache/index3/level", "3")
	write("cpu3/cache/index3/shared_cpu_list", "2-3")
	write("cpu3/node1/x", "")
	require.Equal(t, map[int]cpuPlace{0: {0, 0}, 3: {2, 1}}, readPlaces(sysfs))
}
