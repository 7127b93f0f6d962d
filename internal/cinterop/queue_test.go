//go:build linux

package cinterop

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// More items come back to a queue than a call can remember from one search of all slots. Calls take these items in the
// order in which they were put.
func TestQueueReturned(t *testing.T) {
	const n = 200
	for _, langs := range [][2]string{{"go", "c"}, {"c", "go"}, {"c", "c"}} {
		t.Run(langs[0]+"-"+langs[1], func(t *testing.T) {
			name := newArena(t)
			x, y := newAgent(t, langs[0], name, "gives back"), newAgent(t, langs[1], name, "gets")
			x.do(t, "queue.open", "q", n)
			for i := range 2 {
				require.EqualValues(t, n/2, x.do(t, "queue.putbatch", "q", 1+i*n/2, n/2))
			}
			for i := range n {
				require.EqualValues(t, i+1, x.do(t, "queue.lease", "q"))
			}
			for range n { // the latest item first
				x.do(t, "queue.nack", "q")
			}
			require.EqualValues(t, 1<<8|n/2, y.do(t, "queue.getbatch", "q", n/2))
			require.EqualValues(t, n/2+1, x.do(t, "queue.get", "q"))
			require.EqualValues(t, (n/2+2)<<8|n/2-1, y.do(t, "queue.getbatch", "q", n/2))
			require.Zero(t, y.do(t, "queue.len", "q"))
		})
	}
}

// Items that come back to a queue in C keep their order, even if more than 2^30 other items were put between them.
func TestQueueInCReturnedInOrderAfterManyPuts(t *testing.T) {
	runC(t, "returned.c", unusedName(t))
}
