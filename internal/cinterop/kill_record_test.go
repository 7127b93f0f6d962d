//go:build linux

package cinterop

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
)

// A C program is killed while it makes the record of its slot in an RWMutex, or while it frees
// those of a deleted one. Another participant locks and deletes the RWMutex, and no block is left.
func TestKillRecord(t *testing.T) {
	for _, point := range points(t) {
		if elsewhere[prefixOf(point)] != "TestKillRecord" {
			continue
		}
		for _, lang := range []string{"go", "c"} {
			t.Run(point+"/"+lang, func(t *testing.T) {
				name := newArena(t)
				x := newAgent(t, lang, name, "stays")
				x.do(t, "mutex.open", "m", 1)
				x.do(t, "churn", "before", 7)
				a, err := arena.Attach(name, nil)
				require.NoError(t, err)
				defer a.Close()
				before := a.Stats().Objects

				other := newAgent(t, lang, name, "has a record, too")
				other.do(t, "rw.rlock", "rw")
				other.do(t, "rw.runlock", "rw")
				victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT="+point)
				victim.mortal = true
				if strings.HasSuffix(point, ".freeing") {
					other.leaves(t)
					victim.starts("gone.delete rw")
					victim.ends(t)
				} else {
					victim.starts("rw.rlock rw")
					victim.ends(t)
					for _, y := range []*agent{newAgent(t, lang, name, "has none yet"), other} {
						y.do(t, "rw.lock", "rw")
						y.do(t, "rw.unlock", "rw")
						y.leaves(t)
					}
					eventually(t, "nobody has it open", name, func() bool { return x.start(t, "gone.delete", "rw").wait(t).err == 0 })
				}
				sound(t, name)
				leftovers(t, name, x)
				require.Equal(t, before, a.Stats().Objects)
				require.Zero(t, a.Stats().SlotRecords)
			})
		}
	}
}

// leaves has an agent close its arena and end.
func (x *agent) leaves(t *testing.T) {
	t.Helper()
	x.do(t, "close", "-")
	x.ends(t)
}
