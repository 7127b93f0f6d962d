//go:build linux

package cinterop

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process that is dead but not gone may still write to its data by a system call. Its transaction is not undone
// before it is gone: until then no byte of the log or of the data changes. Then the next holder undoes the
// transaction.
func TestTxIsUndoneAfterTheLastStore(t *testing.T) {
	for _, lang := range []string{"c", "go"} {
		t.Run(lang, func(t *testing.T) {
			name := newArena(t)
			x := newAgent(t, lang, name, "survivor")
			h := hand{open: verb("tx.open"), take: verb("tx.hold")}
			victim := h.dying(t, name, x)
			i := txMap(t, name, x.do(t, "tx.open", "x"))
			s, count := i.state(), x.do(t, "tx.count", "x")
			require.NotZero(t, s)
			require.NotZero(t, count)
			x.start(t, "tx.begin", "x", 20).fails(t, syscall.ETIMEDOUT)
			x.start(t, "tx.try", "x").fails(t, syscall.EBUSY)
			begun := x.start(t, "tx.check", "x")
			// A joiner looks at everything that dead participants have left.
			newAgent(t, lang, name, "joiner").start(t, "tx.begin", "x", 20).fails(t, syscall.ETIMEDOUT)
			require.Equal(t, s, i.state())
			require.Equal(t, count, x.do(t, "tx.count", "x"))
			select {
			case a := <-begun.c:
				t.Fatalf("%v, while the dead one may write", a)
			default:
			}
			victim.in.Close() // this ends the child of the victim
			require.Zero(t, begun.must(t))
			require.Zero(t, i.state())
			require.Zero(t, x.do(t, "tx.count", "x"))
			sound(t, name)
		})
	}
}
