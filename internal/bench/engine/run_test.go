//go:build linux

package engine

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/madeup"
	"github.com/shmsync/shmsync/internal/bench/plan"
)

// The memory of a cell is a file in the directory that the option Arenas names, or a memfd if it names none.
func TestSegmentLiesWhereItIsSaid(t *testing.T) {
	dir := t.TempDir()
	o := madeup.Options()
	o.Arenas = []string{"", dir}
	for _, name := range []string{"shmsync:mutex", "c:robust"} {
		o.Prims = []string{name}
		cells, err := plan.Cells(o, "lock")
		require.NoError(t, err)
		for _, c := range cells {
			create := c.Subject.Segment
			if create == nil {
				create = newSegment
			}
			f, err := create(c)
			require.NoError(t, err)
			at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
			require.NoError(t, err)
			require.NoError(t, f.Close())
			if c.Arena == "" {
				require.Contains(t, at, "memfd:")
				require.NotContains(t, c.Key(), "arena=")
				continue
			}
			require.True(t, strings.HasPrefix(at, dir+"/"), at)
			require.True(t, strings.HasSuffix(at, " (deleted)"), at)
			require.True(t, strings.HasPrefix(c.Key(), "lock/arena="+bench.ArenaName(dir)+"/by="), c.Key())
		}
	}
}
