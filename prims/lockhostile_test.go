//go:build linux

package prims_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// scribbler overwrites the words of an object whose waiters queue, and the words of their nodes,
// with values that no correct participant would write.
type scribbler struct {
	a          *arena.Arena
	body, size uint64
	r          *rand.Rand
	// more returns the offsets of further words of the object, or is nil.
	more func() []arena.Offset
}

func (s *scribbler) word(off uint64) *atomic.Uint64 {
	return arena.At[atomic.Uint64](s.a, arena.Offset(s.body+off))
}

// value returns a number that may have a meaning for the object.
func (s *scribbler) value() uint64 {
	switch s.r.IntN(6) {
	case 0:
		return 0
	case 1:
		return ^uint64(0)
	case 2:
		return s.r.Uint64N(20)
	case 3: // an offset in the object, a multiple of 64
		return (s.body + s.r.Uint64N(s.size)) &^ 63
	case 4:
		return s.r.Uint64N(1<<16) | s.r.Uint64N(1<<16)<<32
	}
	return s.r.Uint64()
}

// scribble overwrites some words of the object: none, all or a few.
func (s *scribbler) scribble() {
	n := s.size / 8
	switch s.r.IntN(4) {
	case 0: // no word of the object, only those of the nodes
	case 1:
		for off := range n {
			s.put(off * 8)
		}
	default:
		for range 1 + s.r.IntN(8) {
			s.put(s.r.Uint64N(n) * 8)
		}
	}
	if s.more != nil {
		all := s.more()
		for range s.r.IntN(8) {
			arena.At[atomic.Uint64](s.a, all[s.r.IntN(len(all))]).Store(s.value())
		}
	}
	prims.EachNode(s.a, s.body, func(words [4]*atomic.Uint64) {
		if s.r.IntN(2) == 0 {
			words[s.r.IntN(4)].Store(s.value())
		}
	})
}

func (s *scribbler) put(off uint64) {
	v := s.value()
	if off == 0 {
		// The owner word of a CohortMutex must not get the ID of this process: the process would hold the lock
		// and wait for itself for ever.
		v = s.r.Uint64() | 1<<31
	}
	s.word(off).Store(v)
}

// hostileLock overwrites words of an object again and again while something is held and waited for.
func hostileLock(t *testing.T, rounds int, f func(a *arena.Arena, s *scribbler, try func(what string, f func(ctx context.Context)))) {
	var h hostile
	defer h.end()
	r := rand.New(rand.NewPCG(11, rand.Uint64()))
	for range rounds {
		a := h.next(t)
		s := &scribbler{a: a, r: r}
		f(a, s, func(what string, f func(ctx context.Context)) {
			s.scribble()
			ctx, cancel := context.WithTimeout(context.Background(), hostileTimeout)
			defer cancel()
			require.NoError(t, guarded(what, func() string { return words(a) }, func() { f(ctx) }))
		})
	}
}

func hostileRounds() int {
	return proctest.Rounds(40, 120)
}

func TestHostileFairMutex(t *testing.T) {
	hostileLock(t, hostileRounds(), func(a *arena.Arena, s *scribbler, try func(string, func(context.Context))) {
		f, err := prims.OpenFairMutex(a, "", nil)
		require.NoError(t, err)
		s.body, s.size = f.Body()
		f.Lock()
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { f.LockContext(ctx) })
		}
		p := f.LockAsync()
		try("LockContext", func(ctx context.Context) { f.LockContext(ctx) })
		try("TryLock", func(context.Context) { f.TryLock() })
		try("Unlock", func(context.Context) { f.Unlock() })
		try("LockAsync", func(context.Context) { f.LockAsync().Cancel() })
		try("Recover", func(ctx context.Context) { f.RecoverContext(ctx, func() error { return nil }) })
		try("Recover fails", func(ctx context.Context) { f.RecoverContext(ctx, func() error { return errRepair }) })
		try("State", func(context.Context) { _, _, _, _ = f.State(), f.String(), words(a), a.Check() })
		try("Cancel", func(context.Context) { p.Cancel() })
		cancel()
		require.NoError(t, guarded("the end of waits", f.String, wg.Wait))
		f.Close()
	})
}

func TestHostileMultiLock(t *testing.T) {
	hostileLock(t, hostileRounds(), func(a *arena.Arena, s *scribbler, try func(string, func(context.Context))) {
		x, err := prims.OpenMultiLock(a, "", &prims.MultiLockOptions{Buckets: 1 + s.r.IntN(2)})
		require.NoError(t, err)
		s.body, s.size = x.Body()
		var holds prims.Holds
		for key := range uint64(9) {
			if key%2 == 0 {
				x.Lock(key).Unlock() // so that the next Lock of the key is by CAS
			}
			holds = append(holds, x.Lock(key))
		}
		further := append(x.BlockWords(), x.RecordWords()...)
		s.more = func() []arena.Offset { return further }
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for key := range uint64(9) {
			wg.Go(func() { x.LockContext(ctx, key/2) })
		}
		key := s.r.Uint64N(9)
		try("LockContext", func(ctx context.Context) { x.LockContext(ctx, key) })
		try("TryLock", func(context.Context) { x.TryLock(key + 20) })
		try("Unlock", func(context.Context) { holds[key].Unlock() })
		try("LockAll", func(ctx context.Context) { x.LockAllContext(ctx, 20, 21, 22, 23, 24, 25, 26) })
		try("Recover", func(ctx context.Context) { x.RecoverContext(ctx, key, func() error { return nil }) })
		try("Recover fails", func(ctx context.Context) { x.RecoverContext(ctx, key, func() error { return errRepair }) })
		try("State", func(context.Context) { _, _, _, _ = x.State(key), x.String(), words(a), a.Check() })
		try("Unlock of another", func(context.Context) { holds[(key+1)%9].Unlock() })
		try("open", func(ctx context.Context) {
			if y, err := prims.MultiLockAt(a, x.Offset()); err == nil {
				y.LockContext(ctx, key)
				y.TryLock(key + 30)
				y.Close()
			}
		})
		cancel()
		require.NoError(t, guarded("the end of waits", x.String, wg.Wait))
		at, err := prims.MultiLockAt(a, x.Offset()) // may fail: a peer may have overwritten the number of buckets
		if err == nil {
			at.Close()
		}
		x.Close()
	})
}
