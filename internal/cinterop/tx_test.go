//go:build linux

package cinterop

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

// How the transactions of a victim change the data.
const (
	txMixed   = 0 // plain stores, with aborts and full logs
	txRead    = 1 // by read(2)
	txUnsaved = 2 // plain stores without Save
)

// txKills returns how many victims a test kills for each pair of languages. Few are enough: TestTxKilledAt and
// internal/stepkill kill at chosen instructions. A mistake shows often, because every second kill leaves torn data if
// the transactions do not call Save.
func txKills() int { return proctest.Rounds(20, 300) }

// txKilled kills victims in transactions at random moments. It returns how many transactions were undone, and how
// often a survivor found the data torn.
func txKilled(t *testing.T, m, victims, survivors string, kills int, mode func(i int) int) (undone, torn uint64) {
	t.Helper()
	name := newArena(t)
	x, y := newAgent(t, survivors, name, "survivor"), newAgent(t, survivors, name, "bystander")
	x.do(t, "tx.open", m)
	x.do(t, "tx.turn", m, txMixed, 1, 10)
	for i := range kills {
		victim := newAgent(t, victims, name, "victim")
		how := mode(i)
		victim.start(t, "tx.work", m, how, rand.Uint64()>>1)
		victim.do(t, "tx.began", m)
		most := int64(300e3)
		if how == txRead {
			most = 3e6
		}
		pause := syscall.NsecToTimespec(rand.Int64N(most))
		syscall.Nanosleep(&pause, nil)
		victim.kill(t)
		victim.in.Close()
		if i%3 == 0 { // several processes begin at once
			a, b := x.start(t, "tx.check", m), y.start(t, "tx.check", m)
			torn += min(1, a.must(t)+b.must(t))
		} else if m == "rw" && i%3 == 1 {
			torn += min(1, x.do(t, "tx.look", m))
		} else {
			torn += min(1, x.do(t, "tx.check", m))
		}
	}
	undone = txBalance(t, name, m)
	sound(t, name)
	return undone, torn
}

// Kinds of blocks, as in docs/abi.md.
const (
	blockClaimed = 1
	blockRaw     = 2
	blockFreeing = 5
	blockLogged  = 7
)

// txBalance requires that the log is idle, and that no block has leaked: only the nodes of the list in the data are
// still allocated. It returns how many transactions were undone.
func txBalance(t *testing.T, name, m string) (undone uint64) {
	t.Helper()
	c := newAgent(t, "c", name, "counter")
	eventually(t, "the blocks of the dead are free", name, func() bool {
		return c.do(t, "tx.blocks", m, blockClaimed)+c.do(t, "tx.blocks", m, blockFreeing) == 0
	})
	require.Zero(t, c.do(t, "tx.blocks", m, blockLogged))
	require.Equal(t, c.do(t, "tx.count", m), c.do(t, "tx.blocks", m, blockRaw))
	require.Zero(t, c.do(t, "tx.state", m))
	return c.do(t, "tx.rollbacks", m)
}

// txModes makes every tenth victim change the data by read(2), and the others by plain stores.
func txModes(i int) int {
	if i%10 == 0 {
		return txRead
	}
	return txMixed
}

// A process dies in a transaction. The next holder of the lock finds the data as it was before the transaction.
func TestTxKilled(t *testing.T) {
	t.Parallel()
	txAllKilled(t, "m")
}

// As TestTxKilled, with an RWMutex, which some of the survivors lock for reading.
func TestTxKilledRW(t *testing.T) {
	t.Parallel()
	txAllKilled(t, "rw")
}

func txAllKilled(t *testing.T, m string) {
	for _, p := range pairs {
		t.Run(p[0]+"-"+p[1], func(t *testing.T) {
			kills := txKills()
			undone, torn := txKilled(t, m, p[0], p[1], kills, txModes)
			t.Logf("%d kills, %d transactions undone, %d torn", kills, undone, torn)
			require.Zero(t, torn)
			require.NotZero(t, undone, "the kills came at the wrong time")
		})
	}
}

// Without Save, the kills of TestTxKilled leave torn data. So TestTxKilled would notice torn data.
func TestTxKilledWithoutSave(t *testing.T) {
	kills := max(txKills()/3, 50)
	_, torn := txKilled(t, "m", "c", "c", kills, func(int) int { return txUnsaved })
	t.Logf("%d kills, %d torn", kills, torn)
	require.NotZero(t, torn)
}

// Crash points that a transaction passes, and those that a rollback passes.
var (
	txPoints = []string{"tx.save.recorded", "tx.save.valid", "tx.alloc.claimed", "tx.alloc.recorded", "tx.alloc.logged", "tx.free.recorded", "tx.free.logged",
		"tx.commit.decided", "tx.commit.block", "tx.commit.idle", "tx.undo.range", "tx.undo.undone", "tx.undo.block", "tx.undo.idle"}
	txRollback = map[string][]string{
		"m":  {"tx.rollback.taken", "tx.undo.range", "tx.undo.undone", "tx.undo.block", "tx.undo.idle", "tx.rollback.released"},
		"rw": {"rwmutex.rollback.taken", "tx.undo.range", "tx.undo.undone", "tx.undo.block", "tx.undo.idle", "rwmutex.rollback.opened"},
	}
)

// needsPoints skips a test in which a Go program has to die at a crash point, if the program was built without
// crash points.
func needsPoints(t *testing.T, lang string) {
	if lang == "go" && !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
}

// A process dies at each crash point of a transaction, in its commit or in its abort.
func TestTxKilledAt(t *testing.T) {
	t.Parallel()
	txKilledAt(t, "m")
}

// As TestTxKilledAt, with an RWMutex.
func TestTxKilledAtRW(t *testing.T) {
	t.Parallel()
	txKilledAt(t, "rw")
}

func txKilledAt(t *testing.T, m string) {
	for _, p := range pairs {
		for _, point := range proctest.Sample(txPoints, 3) {
			t.Run(p[0]+"-"+p[1]+"/"+point, func(t *testing.T) {
				needsPoints(t, p[0])
				for _, n := range []string{"1", "2", "7"} {
					name := newArena(t)
					x := newAgent(t, p[1], name, "survivor")
					x.do(t, "tx.open", m)
					victim := newAgent(t, p[0], name, "victim", "SHMSYNC_CRASHPOINT="+point+":"+n)
					victim.mortal = true
					victim.start(t, "tx.work", m, txMixed, rand.Uint64()>>1)
					victim.ends(t)
					require.Zero(t, x.do(t, "tx.check", m))
					txBalance(t, name, m)
					sound(t, name)
				}
			})
		}
	}
}

// A process dies, or is stopped, at each crash point of the rollback of a dead process's transaction. If the process is
// stopped, it holds the lock. If it dies, the next process starts the rollback again.
func TestTxKilledInRollback(t *testing.T) {
	t.Parallel()
	txKilledInRollback(t, "m")
}

// As TestTxKilledInRollback, with an RWMutex.
func TestTxKilledInRollbackRW(t *testing.T) {
	t.Parallel()
	txKilledInRollback(t, "rw")
}

func txKilledInRollback(t *testing.T, m string) {
	for _, p := range pairs {
		for _, point := range txRollback[m] {
			for _, how := range []string{"CRASHPOINT", "CRASHPOINT_STOP"} {
				t.Run(p[0]+"-"+p[1]+"/"+point+"/"+how, func(t *testing.T) {
					needsPoints(t, p[0])
					name := newArena(t)
					holder := newAgent(t, p[1], name, "holder")
					holder.do(t, "tx.open", m)
					holder.do(t, "tx.hold", m)
					// Only the victim is left to do the rollback.
					victim := newAgent(t, p[0], name, "victim", "SHMSYNC_"+how+"="+point)
					victim.mortal = true
					holder.kill(t)
					victim.start(t, "tx.check", m)
					if how == "CRASHPOINT" {
						victim.ends(t)
						require.Zero(t, newAgent(t, p[1], name, "survivor").do(t, "tx.check", m))
						sound(t, name)
						return
					}
					stopped(t, victim)
					x := newAgent(t, p[1], name, "survivor")
					if point != "tx.rollback.released" && point != "rwmutex.rollback.opened" {
						x.start(t, "tx.begin", m, 20).fails(t, syscall.ETIMEDOUT)
						x.start(t, "tx.try", m).fails(t, syscall.EBUSY)
					}
					victim.kill(t)
					require.Zero(t, x.do(t, "tx.check", m))
					txBalance(t, name, m)
					txBalance(t, name, m)
					sound(t, name)
				})
			}
		}
	}
}

// stopped waits until a thread of x has stopped at a crash point.
func stopped(t *testing.T, x *agent) {
	t.Helper()
	eventually(t, x.label+" has stopped", x.arena, func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", x.cmd.Process.Pid))
		require.NoError(t, err)
		return slices.ContainsFunc(threads, func(stat string) bool {
			b, err := os.ReadFile(stat)
			_, after, _ := strings.Cut(string(b), ") ")
			return err == nil && strings.HasPrefix(after, "T")
		})
	})
}

// txImage is the mapped file of an arena, with the place of the undo log of its mutex.
type txImage struct {
	b   []byte
	log uint64
}

func txMap(t *testing.T, name string, off uint64) txImage {
	t.Helper()
	f, err := os.OpenFile("/dev/shm/"+name, os.O_RDWR, 0)
	require.NoError(t, err)
	seg, err := shm.FromFile(f, nil)
	require.NoError(t, err)
	t.Cleanup(func() { seg.Close(); f.Close() })
	return txImage{seg.Bytes(), off + 64 + 192}
}

func (i txImage) state() uint64     { return binary.LittleEndian.Uint64(i.b[i.log:]) }
func (i txImage) setState(s uint64) { binary.LittleEndian.PutUint64(i.b[i.log:], s) }

// footer returns the footer of the last record in the log.
func (i txImage) footer() []byte {
	tail := i.state() & 0xffffffff
	return i.b[i.log+64+tail-16 : i.log+64+tail]
}

// A peer writes impossible bytes into the log of a process, which then dies. The mutex becomes not-recoverable, and no
// byte of the data changes. A recover makes the mutex usable.
func TestTxImpossibleLog(t *testing.T) {
	last := func(f func(footer []byte)) func(i txImage) { return func(i txImage) { f(i.footer()) } }
	for what, spoil := range map[string]func(i txImage){
		"phase":                 func(i txImage) { i.setState(i.state()&^(7<<61) | 5<<61) },
		"idle with a tail":      func(i txImage) { i.setState(i.state() &^ (7 << 61)) },
		"nobody":                func(i txImage) { i.setState(i.state() &^ (0x1fffffff << 32)) },
		"tail too long":         func(i txImage) { i.setState(i.state() | 1<<24) },
		"tail uneven":           func(i txImage) { i.setState(i.state() + 4) },
		"no tail":               func(i txImage) { i.setState(i.state() &^ 0xffffffff) },
		"tail in a record":      func(i txImage) { i.setState(i.state() - 16) },
		"kind":                  last(func(f []byte) { f[12] = 9 }),
		"length":                last(func(f []byte) { f[11] = 0x7f }),
		"no length":             last(func(f []byte) { f[8], f[9], f[10], f[11] = 0, 0, 0, 0 }),
		"a block with a length": last(func(f []byte) { f[12] = 1 }),
		"offset far":            last(func(f []byte) { f[7] = 0x7f }),
		"offset of header":      last(func(f []byte) { binary.LittleEndian.PutUint64(f, 64) }),
		"offset of the lock":    func(i txImage) { binary.LittleEndian.PutUint64(i.footer(), i.log-192) },
		"offset of the log":     func(i txImage) { binary.LittleEndian.PutUint64(i.footer(), i.log+100) },
		"behind the heap":       func(i txImage) { binary.LittleEndian.PutUint64(i.footer(), uint64(len(i.b)-4)) },
	} {
		for _, lang := range []string{"c", "go"} {
			t.Run(lang+"/"+what, func(t *testing.T) {
				name := newArena(t)
				holder := newAgent(t, "c", name, "holder")
				i := txMap(t, name, holder.do(t, "tx.open", "m"))
				holder.do(t, "tx.hold", "m")
				spoil(i)
				torn := holder.do(t, "tx.torn", "m")
				holder.kill(t)
				x := newAgent(t, lang, name, "survivor")
				x.start(t, "tx.begin", "m").fails(t, syscall.ENOTRECOVERABLE)
				require.Equal(t, torn, x.do(t, "tx.torn", "m"))
				require.EqualValues(t, 1, x.do(t, "tx.recover", "m"))
				require.Zero(t, i.state())
				x.do(t, "tx.check", "m")
				sound(t, name)
			})
		}
	}
}

// With random bytes in the log, no call faults or hangs.
func TestTxAnyLog(t *testing.T) {
	t.Parallel()
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	for _, lang := range []string{"c", "go"} {
		t.Run(lang, func(t *testing.T) {
			for range rounds {
				name := newArena(t)
				x := newAgent(t, lang, name, "survivor")
				i := txMap(t, name, x.do(t, "tx.open", "m"))
				holder := newAgent(t, "c", name, "holder")
				holder.do(t, "tx.hold", "m")
				tail := i.state() & 0xffffffff
				for range 1 + rand.IntN(20) {
					at := i.log + 64 + uint64(rand.Int64N(int64(tail)))
					if rand.IntN(2) == 0 {
						at = i.log + 64 + tail - 1 - uint64(rand.Int64N(64))
					}
					i.b[at] = byte(rand.Uint32())
				}
				holder.kill(t)
				holder.in.Close()
				if x.start(t, "tx.check", "m").wait(t).err == syscall.ENOTRECOVERABLE {
					x.do(t, "tx.recover", "m")
				}
				x.kill(t)
				x.in.Close()
			}
		})
	}
}

// The log has a state that no transaction leaves. A begin makes the mutex not-recoverable. After that, a recover makes
// the mutex usable.
func TestTxStateOfNobody(t *testing.T) {
	for _, lang := range []string{"c", "go"} {
		t.Run(lang, func(t *testing.T) {
			name := newArena(t)
			x := newAgent(t, lang, name, "a")
			i := txMap(t, name, x.do(t, "tx.open", "m"))
			i.setState(16 | 2049<<32 | 1<<61)
			x.start(t, "tx.begin", "m").fails(t, syscall.EPROTO)
			x.start(t, "tx.begin", "m").fails(t, syscall.ENOTRECOVERABLE)
			x.do(t, "tx.recover", "m")
			require.Zero(t, x.do(t, "tx.check", "m"))
		})
	}
}

// A peer overwrites the log of a living process, which then aborts its transaction. The abort fails, and the mutex
// becomes not-recoverable.
func TestTxAbortOfAnImpossibleLog(t *testing.T) {
	name := newArena(t)
	x := newAgent(t, "c", name, "a")
	i := txMap(t, name, x.do(t, "tx.open", "m"))
	x.do(t, "tx.hold", "m")
	i.footer()[12] = 9
	x.start(t, "tx.abort", "m").fails(t, syscall.EPROTO)
	x.start(t, "tx.begin", "m").fails(t, syscall.ENOTRECOVERABLE)
	x.start(t, "tx.commit", "m").fails(t, syscall.EPERM)
}

// A process without a byte lock may begin no transaction. Other processes could not prove its end, so they could not
// undo the transaction.
func TestTxNeedsByteLocks(t *testing.T) {
	name := newArena(t)
	x := newAgent(t, "c", name, "a", "SHMSYNC_DISABLE=ofd")
	x.do(t, "tx.open", "m")
	x.start(t, "tx.begin", "m").fails(t, syscall.ENOTSUP)
}

// Only a Mutex and an RWMutex with PolicyRollback have an undo log.
func TestTxOnlyOfItsPolicy(t *testing.T) {
	name := newArena(t)
	x := newAgent(t, "c", name, "a")
	x.do(t, "tx.open", "plain", 1)
	x.start(t, "tx.begin", "plain").fails(t, syscall.EINVAL)
	x.start(t, "tx.open", "plain", 3).fails(t, syscall.EINVAL)
	x.start(t, "tx.open", "none", 1, 4096).fails(t, syscall.EINVAL)
	x.start(t, "tx.open", "large", 3, 1<<20+1).fails(t, syscall.EINVAL)
	x.do(t, "tx.open", "small", 3, 100)
	x.do(t, "tx.open", "small", 3, 128)
	x.do(t, "tx.open", "small", 0)
	x.start(t, "tx.open", "small", 3, 129).fails(t, syscall.EINVAL)
	x.start(t, "tx.open", "small", 2).fails(t, syscall.EINVAL)
	for _, k := range []string{"fair", "spin", "rwspin", "multi"} {
		x.start(t, k+".open", "other", 3, 1).fails(t, syscall.ENOTSUP)
	}
}

// A process is stopped while it undoes the transaction of a dead process. The rollback will still write to objects that
// the dead process had open. So these objects are not deleted, and the slot of the dead process does not become free.
// The stopped process does not have these objects open.
func TestTxDataIsKeptForItsRollback(t *testing.T) {
	t.Parallel()
	for _, lang := range []string{"c", "go"} {
		t.Run(lang, func(t *testing.T) {
			name := newArena(t)
			holder := newAgent(t, "c", name, "holder")
			holder.do(t, "tx.open", "m")
			holder.do(t, "tx.hold", "m")
			stopping := newAgent(t, "c", name, "stopping", "SHMSYNC_CRASHPOINT_STOP=tx.undo.range")
			stopping.mortal = true
			holder.kill(t)
			stopping.start(t, "tx.begin", "m")
			stopped(t, stopping)
			x := newAgent(t, lang, name, "survivor")
			x.start(t, "futex.wait", "never", 1, 300).fails(t, syscall.ETIMEDOUT) // some time later
			x.start(t, "gone.delete", "m-data").fails(t, syscall.EBUSY)
			x.start(t, "gone.delete", "m").fails(t, syscall.EBUSY)
			stopping.kill(t)
			require.Zero(t, x.do(t, "tx.check", "m"))
			txBalance(t, name, "m")
		})
	}
}

// This test is like TestTxDataIsKeptForItsRollback, but another process takes over the slot of the dead one. This
// process opens and closes the objects, and the open bits of the slot stay set.
func TestTxDataIsKeptFromTheSuccessor(t *testing.T) {
	for _, lang := range []string{"c", "go"} {
		t.Run(lang, func(t *testing.T) {
			name := newArena(t)
			require.NoError(t, shm.Remove(name))
			a, err := arena.Create(name, &arena.Options{Size: 4 << 20, MaxParticipants: 2})
			require.NoError(t, err)
			require.NoError(t, a.Close())
			holder := newAgent(t, "c", name, "holder")
			holder.do(t, "tx.open", "m")
			holder.do(t, "tx.hold", "m")
			stopping := newAgent(t, "c", name, "stopping", "SHMSYNC_CRASHPOINT_STOP=tx.undo.range")
			stopping.mortal = true
			holder.kill(t)
			stopping.start(t, "tx.begin", "m")
			stopped(t, stopping)
			x := newAgent(t, lang, name, "successor")
			x.start(t, "gone.delete", "m-data").fails(t, syscall.EBUSY)
			x.start(t, "gone.delete", "m-data").fails(t, syscall.EBUSY)
			stopping.kill(t)
			require.Zero(t, x.do(t, "tx.check", "m"))
		})
	}
}

// A rollback has marked the log record of a block as given, and its process died. Since then the block was freed, so no
// block begins at its offset. The next rollback completes in spite of that.
func TestTxGivenByAnEarlierRollback(t *testing.T) {
	const given, free, alloc = 4, 2, 1
	for _, lang := range []string{"c", "go"} {
		for phase, want := range map[uint64]byte{2: free, 3: alloc} {
			t.Run(fmt.Sprint(lang, "/phase ", phase), func(t *testing.T) {
				name := newArena(t)
				holder := newAgent(t, "c", name, "holder")
				i := txMap(t, name, holder.do(t, "tx.open", "m"))
				holder.do(t, "tx.hold", "m")
				record := i.b[i.log+64 : i.log+80]
				binary.LittleEndian.PutUint64(record, i.log) // no block begins at this offset
				binary.LittleEndian.PutUint64(record[8:], given<<32)
				i.setState(i.state()&(0x1fffffff<<32) | phase<<61 | 16)
				holder.kill(t)
				newAgent(t, lang, name, "survivor").do(t, "tx.begin", "m")
				require.Equal(t, want, record[12])
			})
		}
	}
}
