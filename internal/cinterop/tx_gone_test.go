//go:build linux

package cinterop

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process that is dead but not gone may still write to its data by a system call. Until the process is gone, no
// survivor changes a byte of its data or of its log. Then the next holder undoes the transaction.
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
			// A joiner examines everything that dead participants have left. It must not undo the transaction, either.
			newAgent(t, lang, name, "joiner").start(t, "tx.begin", "x", 20).fails(t, syscall.ETIMEDOUT)
			require.Equal(t, s, i.state())
			require.Equal(t, count, x.do(t, "tx.count", "x"))
			select {
			case a := <-begun.c:
				t.Fatalf("%v, while the dead one may write", a)
			default:
			}
			victim.in.Close() // ends the child that keeps the byte lock of the victim
			require.Zero(t, begun.must(t))
			require.Zero(t, i.state())
			require.Zero(t, x.do(t, "tx.count", "x"))
			sound(t, name)
		})
	}
}
