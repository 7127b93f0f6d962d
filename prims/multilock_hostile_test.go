//go:build linux

package prims_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

// In these tests a peer has overwritten words of a MultiLock. All calls return, with ErrCorrupt if
// they can detect the damage.

// TestMultiLockHoldOverwritten: the hold word of a key has a value that no correct process writes.
func TestMultiLockHoldOverwritten(t *testing.T) {
	for what, v := range map[string]uint32{
		"a kind that there is not": 7 << 29, "another kind that there is not": 6<<29 | 9, "owner-dead without a name": 3 << 29,
		"recovered by nobody": 4 << 29, "not recoverable without a name": 5 << 29, "granted to nobody": 2 << 29,
	} {
		t.Run(what, func(t *testing.T) {
			eachMultiPlace(t, 0, func(t *testing.T, a *arena.Arena, x *prims.MultiLock, key uint64) {
				h := x.Lock(key)
				x.OverwriteHold(key, v)
				_, err := x.LockContext(t.Context(), key)
				require.ErrorIs(t, err, shmsync.ErrCorrupt)
				_, err = x.LockAllContext(t.Context(), key+1<<40, key)
				require.ErrorIs(t, err, shmsync.ErrCorrupt)
				_, ok := x.TryLock(key)
				require.False(t, ok)
				require.Panics(t, h.Unlock)
				require.ErrorIs(t, x.State(key).Err, shmsync.ErrCorrupt)
				require.ErrorIs(t, x.RecoverContext(t.Context(), key, func() error { return nil }), shmsync.ErrCorrupt)
				require.ErrorIs(t, a.Check(), shmsync.ErrCorrupt)
				x.Lock(key + 1<<40).Unlock() // other keys are not affected
				for _, other := range sameBucket(x, 20)[10:] {
					x.Lock(other).Unlock()
				}
				require.ErrorIs(t, x.State(key).Err, shmsync.ErrCorrupt, "no other key gets its entry")
			})
		})
	}
}

// multiSpoiled is a key that this process holds and for which goroutines wait, before a peer overwrites
// something.
type multiSpoiled struct {
	x     *prims.MultiLock
	key   uint64
	words prims.MultiWords
	nodes []*arenakernel.Node // of the waits
}

// TestMultiLockEntryOverwritten: a peer overwrites the key of an entry, the ends of its queue, or the
// links of its queue, while goroutines wait.
func TestMultiLockEntryOverwritten(t *testing.T) {
	const value = 1 << 32 // the lowest bit of the value of a recorded word
	for what, spoil := range map[string]func(s *multiSpoiled){
		"another key":                func(s *multiSpoiled) { s.words.KeyLow.Add(77 * value) },
		"a key of another bucket":    func(s *multiSpoiled) { s.words.KeyHigh.Store(^uint64(0)) },
		"the key of another entry":   func(s *multiSpoiled) { s.copyKey() },
		"free although others wait":  func(s *multiSpoiled) { s.words.Hold.Store(9) },
		"open although others wait":  func(s *multiSpoiled) { s.words.Hold.Store(1<<61 | 9) },
		"accepted by nobody":         func(s *multiSpoiled) { s.words.Accepted.Store(^uint64(0)) },
		"first: none":                func(s *multiSpoiled) { s.words.First.Store(0) },
		"first: out of the arena":    func(s *multiSpoiled) { s.words.First.Store(^uint64(0)) },
		"first: the last":            func(s *multiSpoiled) { s.words.First.Store(s.words.Last.Load()) },
		"last: none":                 func(s *multiSpoiled) { s.words.Last.Store(0) },
		"last: out of the arena":     func(s *multiSpoiled) { s.words.Last.Store(^uint64(0)) },
		"last: the first":            func(s *multiSpoiled) { s.words.Last.Store(s.words.First.Load()) },
		"no wait":                    func(s *multiSpoiled) { s.words.First.Store(0); s.words.Last.Store(0) },
		"the first wait has left":    func(s *multiSpoiled) { s.nodes[0].Next().Store(arenakernel.RecordedLeft * value) },
		"the first wait is refused":  func(s *multiSpoiled) { s.nodes[0].Next().Store(arenakernel.RecordedRefused * value) },
		"no node follows":            func(s *multiSpoiled) { s.nodes[0].Next().Store(1 << 63) },
		"a node of nobody is before": func(s *multiSpoiled) { s.nodes[1].Extra().Store(1 << 63) },
		"a circle":                   func(s *multiSpoiled) { s.nodes[1].Next().Store(s.words.First.Load()) },
		"a wait for another key":     func(s *multiSpoiled) { s.nodes[0].Wanted().Add(1) },
	} {
		t.Run(what, func(t *testing.T) {
			eachMultiPlace(t, 0, func(t *testing.T, a *arena.Arena, x *prims.MultiLock, key uint64) {
				h := x.Lock(key)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var wg sync.WaitGroup
				for n := range 3 {
					wg.Go(func() { x.LockContext(ctx, key) })
					eventually(t, "it waits", x.String, func() bool { return x.Queued(key) == n+1 })
				}
				spoil(&multiSpoiled{x, key, x.Words(key), x.QueuedNodes(key)})
				for call, f := range map[string]func(){
					"LockContext": func() {
						if strings.HasPrefix(what, "last: ") { // the call finds the damage before it waits
							_, err := x.LockContext(t.Context(), key)
							require.ErrorIs(t, err, shmsync.ErrCorrupt)
							return
						}
						ctx, cancel := context.WithTimeout(t.Context(), hostileTimeout)
						defer cancel()
						x.LockContext(ctx, key)
					},
					"TryLock": func() { x.TryLock(key) }, "State": func() { _, _, _, _ = x.State(key), x.String(), words(a), a.Check() },
					"fresh keys": func() {
						for _, k := range sameBucket(x, 20)[10:] {
							if h, ok := x.TryLock(k); ok {
								h.Unlock()
							}
						}
					},
				} {
					require.NoError(t, guarded(call, x.String, f))
				}
				require.NoError(t, guarded("Unlock", x.String, h.Unlock))
				cancel()
				require.NoError(t, guarded("the end of the waits", x.String, wg.Wait))
				require.NoError(t, guarded("Close", x.String, func() { x.Close() }))
			})
		})
	}
}

// copyKey gives an entry of the same bucket the same key.
func (s *multiSpoiled) copyKey() {
	for _, key := range sameBucket(s.x, 20)[10:] {
		h, ok := s.x.TryLock(key)
		if !ok {
			continue
		}
		w := s.x.Words(key)
		w.KeyLow.Store(s.words.KeyLow.Load())
		w.KeyHigh.Store(s.words.KeyHigh.Load())
		if h.Unlock(); w.KeyLow != s.words.KeyLow {
			return
		}
	}
}

// TestMultiLockListOfBlocksOverwritten: a peer overwrites a block or the list of the blocks. A handle
// that already knows the blocks still works. A new handle finds the damage when it looks for the blocks.
func TestMultiLockListOfBlocksOverwritten(t *testing.T) {
	const next, number = 0, 20 // the offsets of fields in the header of a block; see internal/arenakernel/slotrecord.go
	for what, spoil := range map[string]func(a *arena.Arena, x *prims.MultiLock, blocks []arenakernel.Offset){
		"a bucket that there is not": func(_ *arena.Arena, x *prims.MultiLock, b []arenakernel.Offset) { *x.BlockBucket(b[1]) = 32 },
		"a circle": func(a *arena.Arena, _ *prims.MultiLock, b []arenakernel.Offset) {
			arena.At[atomic.Uint64](a, b[2]+next).Store(uint64(b[0]))
		},
		"itself": func(a *arena.Arena, _ *prims.MultiLock, b []arenakernel.Offset) {
			arena.At[atomic.Uint64](a, b[1]+next).Store(uint64(b[1]))
		},
		"a number that does not fall": func(a *arena.Arena, _ *prims.MultiLock, b []arenakernel.Offset) {
			arena.At[atomic.Uint32](a, b[1]+number).Add(1)
		},
		"no number": func(a *arena.Arena, _ *prims.MultiLock, b []arenakernel.Offset) {
			arena.At[atomic.Uint32](a, b[1]+number).Store(0) // the number of a slot record; no block has it
		},
		"out of the arena": func(a *arena.Arena, _ *prims.MultiLock, b []arenakernel.Offset) {
			arena.At[atomic.Uint64](a, b[1]+next).Store(1 << 50)
		},
	} {
		t.Run(what, func(t *testing.T) {
			a := newArena(t, nil)
			x := openMulti(t, a, nil)
			keys := sameBucket(x, 40)
			var holds prims.Holds
			for _, key := range keys[:15] {
				holds = append(holds, x.Lock(key))
			}
			x.Lock(keys[0] + 1).Unlock()                   // the next handle completes this record of a bucket without blocks
			early, err := prims.OpenMultiLock(a, "m", nil) // opened before the damage; does not look for blocks yet
			require.NoError(t, err)
			blocks := x.MultiBlocks()
			require.Len(t, blocks, 3)
			spoil(a, x, blocks)

			require.ErrorIs(t, a.Check(), shmsync.ErrCorrupt)
			for _, key := range keys[:20] {
				require.NoError(t, guarded("TryLock", x.String, func() { early.TryLock(key) }))
				require.NoError(t, guarded("Lock", x.String, func() { early.Lock(key) }))
				require.NoError(t, guarded("State", x.String, func() { early.State(key) }))
				_, err := early.LockContext(t.Context(), key)
				require.ErrorIs(t, err, shmsync.ErrCorrupt)
				require.ErrorIs(t, early.Recover(key, func() error { return nil }), shmsync.ErrCorrupt)
			}
			require.NoError(t, guarded("open", x.String, func() {
				if late, err := prims.OpenMultiLock(a, "m", nil); err == nil {
					_, err = late.LockContext(t.Context(), keys[0])
					require.ErrorIs(t, err, shmsync.ErrCorrupt)
					require.NoError(t, late.Close())
				} else {
					require.ErrorIs(t, err, shmsync.ErrCorrupt)
				}
			}))
			require.NoError(t, guarded("a death", x.String, func() {
				lockActor(t, a, "dies").proc.Kill(t)
				alone(t, a, 1)
			}))

			for _, key := range keys[:15] {
				require.True(t, x.State(key).Held)
			}
			holds.Unlock()
			for _, key := range keys[:15] {
				x.Lock(key).Unlock()
			}
			require.NoError(t, early.Close())
			require.NoError(t, x.Close())
			require.NoError(t, a.Delete("m"))
		})
	}
}

// TestMultiLockRecordOverwritten: the record of a participant has the number of a bucket. A peer overwrites it with the
// number of a bucket that does not exist. The participant and others can still lock keys.
func TestMultiLockRecordOverwritten(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	other := lockActor(t, a, "other")
	x.Lock(1).Unlock()
	x.SetRecordBucket(32)
	z, err := prims.OpenMultiLock(a, "m", nil)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	for _, key := range []uint64{1, 2, 3} {
		other.must(t, order{Op: "mspin", Object: "m", Token: key, N: 3})
	}
	other.must(t, order{Op: "mlock", Object: "m", Token: 5})
	require.NoError(t, guarded("the handle that is open", x.String, func() { x.Lock(1).Unlock() }))
	other.proc.Kill(t)
	alone(t, a, 1)
	require.NoError(t, guarded("State", x.String, func() { _, _, _ = x.State(5), x.String(), words(a) }))
	_, err = x.LockContext(t.Context(), 5)
	require.ErrorIs(t, err, shmsync.ErrOwnerDead, "the reap of the handle that is open")
	x.SetRecordBucket(0)
	y, err := prims.OpenMultiLock(a, "m", nil)
	require.NoError(t, err)
	require.NoError(t, y.Recover(5, func() error { return nil }))
	require.NoError(t, y.Close())
	require.NoError(t, x.Close())
	require.NoError(t, a.Delete("m"))
	sound(t, a)
}

// TestMultiLockDamageConcernsOneKey: a process holds one key and waits for another key of the same bucket. A peer
// overwrites the queue of the other key, and then the process dies. A wait for the key that the process held reports
// the death, and that key can be recovered.
func TestMultiLockDamageConcernsOneKey(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	keys := sameBucket(x, 2)
	damaged, sound := keys[0], keys[1]
	x.Lock(damaged)
	dies := lockActor(t, a, "dies")
	dies.must(t, order{Op: "mlock", Object: "m", Token: sound})
	multiQueued(t, x, dies, damaged, order{Op: "mlockctx", Token: damaged})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 2)
	for _, key := range keys {
		go func() {
			_, err := x.LockContext(ctx, key)
			ended <- err
		}()
	}
	eventually(t, "they wait", x.String, func() bool { return x.Queued(damaged) == 2 && x.Queued(sound) == 1 })
	x.QueuedNodes(damaged)[0].Next().Store(1 << 63) // no node follows
	dies.proc.Kill(t)
	for told := false; !told; {
		select {
		case err := <-ended:
			told = errors.Is(err, shmsync.ErrOwnerDead)
		case <-after(timeout()):
			t.Fatalf("no wait is told of the death\n%s", words(a))
		}
	}
	require.NoError(t, x.Recover(sound, func() error { return nil }))
}

// TestMultiLockDamageFailsNoOtherKey: a peer overwrites the queue of one key, and a participant dies. The first call for
// another key of the same bucket then reaps, and succeeds.
func TestMultiLockDamageFailsNoOtherKey(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	keys := sameBucket(x, 2)
	x.Lock(keys[0])
	dies := lockActor(t, a, "dies")
	multiQueued(t, x, dies, keys[0], order{Op: "mlockctx", Token: keys[0]})
	x.QueuedNodes(keys[0])[0].Next().Store(1 << 63) // no node follows
	dies.proc.Kill(t)
	alone(t, a, 1)
	h, err := x.LockContext(t.Context(), keys[1])
	require.NoError(t, err)
	h.Unlock()
}
