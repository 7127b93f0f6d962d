//go:build linux

package cinterop

import (
	"encoding/binary"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// setOwner overwrites the owner word of the mutex.
func (i txImage) setOwner(o uint32) { binary.LittleEndian.PutUint32(i.b[i.log-192:], o) }

func (i txImage) owner() uint32 { return binary.LittleEndian.Uint32(i.b[i.log-192:]) }

// txLeft makes an arena with a free mutex whose log still has the transaction of a dead process. That process had
// unlocked the mutex within the transaction. txLeft returns the number of torn values in the data.
func txLeft(t *testing.T) (name string, i txImage, torn uint64) {
	t.Helper()
	name = newArena(t)
	holder := newAgent(t, "c", name, "holder")
	i = txMap(t, name, holder.do(t, "tx.open", "m"))
	holder.do(t, "tx.hold", "m")
	torn = holder.do(t, "tx.torn", "m")
	i.setOwner(0)
	holder.kill(t)
	return name, i, torn
}

// requireTxLost requires that the mutex is not recoverable for x, that no transaction was undone, and that a recover
// makes the mutex usable.
func requireTxLost(t *testing.T, x *agent, i txImage, torn uint64) {
	t.Helper()
	x.start(t, "tx.begin", "m").fails(t, syscall.ENOTRECOVERABLE)
	require.Equal(t, torn, x.do(t, "tx.torn", "m"))
	require.Equal(t, uint64(4)<<61, i.state())
	require.EqualValues(t, 1, x.do(t, "tx.recover", "m"))
	require.Zero(t, i.state())
	x.do(t, "tx.check", "m")
	sound(t, x.arena)
}

// A process dies in the recover of a mutex that is not recoverable. The next process does not undo the old transaction,
// because that would overwrite the repaired data.
func TestTxRecoverThatDies(t *testing.T) {
	for _, p := range pairs {
		for _, point := range []string{"mutex.recover.taken", "mutex.recover.repaired"} {
			t.Run(p[0]+"-"+p[1]+"/"+point, func(t *testing.T) {
				needsPoints(t, p[0])
				name, i, torn := txLeft(t)
				x := newAgent(t, p[1], name, "survivor")
				x.start(t, "tx.begin", "m").fails(t, syscall.EPROTO)
				victim := newAgent(t, p[0], name, "victim", "SHMSYNC_CRASHPOINT="+point)
				victim.mortal = true
				victim.start(t, "tx.recover", "m")
				victim.ends(t)
				requireTxLost(t, x, i, torn)
			})
		}
	}
}

// A process dies, or is stopped, just after it has marked a log as lost. It marks the log when it begins a transaction,
// or when it reaps a dead holder. Only in the first case does it have the lock.
func TestTxLostAtItsPoint(t *testing.T) {
	for _, p := range pairs {
		for _, how := range []string{"CRASHPOINT", "CRASHPOINT_STOP"} {
			for _, foreign := range []bool{false, true} {
				what := "/begin"
				if foreign {
					what = "/dead holder"
				}
				t.Run(p[0]+"-"+p[1]+what+"/"+how, func(t *testing.T) {
					needsPoints(t, p[0])
					name, i, torn := txLeft(t)
					victim := newAgent(t, p[0], name, "victim", "SHMSYNC_"+how+"=tx.log.lost")
					victim.mortal = true
					if foreign {
						holder := newAgent(t, "c", name, "other holder")
						holder.do(t, "mutex.lock", "m", forever)
						holder.kill(t) // only the victim is left to reap the holder
					} else {
						victim.start(t, "tx.begin", "m")
					}
					if how == "CRASHPOINT" {
						victim.ends(t)
					} else {
						stopped(t, victim)
					}
					x := newAgent(t, p[1], name, "survivor")
					if how == "CRASHPOINT_STOP" {
						if !foreign {
							x.start(t, "tx.begin", "m", 20).fails(t, syscall.ETIMEDOUT)
						}
						victim.kill(t)
					}
					requireTxLost(t, x, i, torn)
				})
			}
		}
	}
}

// The log of a mutex still has the transaction of a dead process. A later holder, which has no transaction, dies. The
// old transaction is not undone.
func TestTxOfAnotherHolderIsNotUndone(t *testing.T) {
	for _, p := range pairs {
		t.Run(p[0]+"-"+p[1], func(t *testing.T) {
			name, i, torn := txLeft(t)
			holder := newAgent(t, p[0], name, "other holder")
			holder.do(t, "mutex.lock", "m", forever)
			holder.kill(t)
			requireTxLost(t, newAgent(t, p[1], name, "survivor"), i, torn)
		})
	}
}

// A program unlocks within a transaction. The end of the transaction returns an error, and leaves the mutex
// alone, because another process may have it.
func TestTxEndWithoutTheMutex(t *testing.T) {
	for _, end := range []string{"tx.commit", "tx.abort"} {
		t.Run(end, func(t *testing.T) {
			name := newArena(t)
			x, y := newAgent(t, "c", name, "a"), newAgent(t, "c", name, "b")
			i := txMap(t, name, x.do(t, "tx.open", "m"))
			x.do(t, "tx.hold", "m")
			torn := x.do(t, "tx.torn", "m")
			x.do(t, "mutex.unlock", "m")
			y.do(t, "mutex.lock", "m", forever)
			x.start(t, end, "m").fails(t, syscall.EPERM)
			require.Equal(t, uint64(4)<<61, i.state())
			require.Equal(t, torn, x.do(t, "tx.torn", "m"))
			x.start(t, end, "m").fails(t, syscall.EPERM) // the transaction has ended
			x.start(t, "mutex.trylock", "m").fails(t, syscall.EBUSY)
			y.do(t, "mutex.unlock", "m")
			y.start(t, "tx.begin", "m").fails(t, syscall.EPROTO)
			requireTxLost(t, y, i, torn)
		})
	}
}

// A program unlocks within a transaction, locks again without a transaction, and dies. No process undoes the
// transaction.
func TestTxUnlockedByItsProgramIsNotUndone(t *testing.T) {
	for _, end := range []string{"tx.commit", "tx.abort"} {
		t.Run(end, func(t *testing.T) {
			name := newArena(t)
			x := newAgent(t, "c", name, "a")
			i := txMap(t, name, x.do(t, "tx.open", "m"))
			x.do(t, "tx.hold", "m")
			torn := x.do(t, "tx.torn", "m")
			x.do(t, "mutex.unlock", "m")
			x.start(t, end, "m").fails(t, syscall.EPERM)
			x.do(t, "mutex.lock", "m", forever)
			x.kill(t)
			requireTxLost(t, newAgent(t, "c", name, "survivor"), i, torn)
		})
	}
}

// A reaper has read the owner word of a holder that is gone. Before the reaper goes on, a living process locks and
// begins a transaction. The reaper does not change the log of this transaction.
func TestTxOfALivingHolderKeepsItsLog(t *testing.T) {
	name := newArena(t)
	reaper, dies, x := newAgent(t, "c", name, "reaper"), newAgent(t, "c", name, "dies"), newAgent(t, "c", name, "holder")
	i := txMap(t, name, reaper.do(t, "tx.open", "m"))
	dies.do(t, "mutex.lock", "m", forever)
	stale := i.owner()
	dies.kill(t)
	require.Zero(t, x.do(t, "tx.check", "m"))
	x.do(t, "tx.hold", "m")
	s := i.state()
	require.NotZero(t, s)
	reaper.do(t, "tx.stale", "m", int(stale))
	require.Equal(t, s, i.state())
	x.do(t, "tx.abort", "m")
	require.Zero(t, x.do(t, "tx.check", "m"))
	sound(t, name)
}

// A wait for a condition variable is refused in a transaction, because it would let others see an unfinished
// transaction.
func TestTxCondWait(t *testing.T) {
	name := newArena(t)
	x := newAgent(t, "c", name, "a")
	x.do(t, "tx.open", "m")
	x.do(t, "tx.hold", "m")
	x.start(t, "tx.condwait", "m").fails(t, syscall.EINVAL)
	x.do(t, "tx.commit", "m")
	require.Zero(t, x.do(t, "tx.check", "m"))
}
