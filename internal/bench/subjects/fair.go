//go:build linux

package subjects

import (
	"context"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/peers"
	"github.com/shmsync/shmsync/prims"
)

// fairSubjects are the library's locks whose waiters queue up: a single lock, and locks with many keys.
var fairSubjects = []*bench.Subject{
	{By: bench.Library, Prim: "fairmutex", Segment: newArena, Open: openFairMutex,
		Brief:     []string{"uncontended", "lock"},
		Scenarios: []string{"uncontended", "lock", "idle", "crash"}},
	{By: bench.Library, Prim: "multilock", Segment: newArena, Open: openMultiLock,
		Brief:     []string{"uncontended", "multi"},
		Scenarios: []string{"uncontended", "lock", "multi"}},
	{By: bench.Library, Prim: "multilock-any", Segment: newArena, Open: openMultiLock, Scenarios: []string{"uncontended"}},
	{By: bench.Library, Prim: "multilock-keys", Segment: newArena, Open: openKeyCrowd, Scenarios: []string{"waiters"}},
}

// fairMutex gives a prims.FairMutex the methods that the scenarios call.
type fairMutex struct{ *prims.FairMutex }

func openFairMutex(w *bench.Worker, _ int) (any, error) {
	a, err := JoinArena(w)
	if err != nil {
		return nil, err
	}
	m, err := prims.OpenFairMutex(a, "fairmutex", nil)
	return fairMutex{m}, err
}

func (m fairMutex) Pairs(n int, counter *uint64) {
	for range n {
		m.Lock()
		*counter++
		m.Unlock()
	}
}

func (m fairMutex) Inherit() (bench.Succession, error) { return inherit(m) }

// multiLock is the part of a prims.MultiLock, a set of locks by key, that one thread uses: the handle, and the keys
// that the thread holds.
type multiLock struct {
	m    *prims.MultiLock
	mask uint64 // the largest key that Pairs uses
	keys []uint64
	one  prims.Hold
	all  prims.Holds
}

func openMultiLock(w *bench.Worker, _ int) (any, error) {
	a, err := JoinArena(w)
	if err != nil {
		return nil, err
	}
	m, err := prims.OpenMultiLock(a, "multilock", nil)
	l := &multiLock{m: m, keys: make([]uint64, 0, control.MaxLocks)}
	if w.Subject.Prim == "multilock-any" {
		l.mask = control.ScratchKeys - 1
	}
	return l, err
}

func (l *multiLock) LockKeys(keys []uint32) {
	if len(keys) == 1 {
		l.one = l.m.Lock(uint64(keys[0]))
		return
	}
	l.keys = l.keys[:0]
	for _, k := range keys {
		l.keys = append(l.keys, uint64(k))
	}
	var err error
	l.all, err = l.m.LockAllContext(context.Background(), l.keys...)
	peers.Must(err)
}

func (l *multiLock) UnlockKeys(keys []uint32) {
	if len(keys) == 1 {
		l.one.Unlock()
	} else {
		l.all.Unlock()
	}
}

// Held reports whether any of the keys is locked. It tries to lock each of them.
func (l *multiLock) Held(keys []uint32) bool {
	for _, k := range keys {
		h, ok := l.m.TryLock(uint64(k))
		if !ok {
			return true
		}
		h.Unlock()
	}
	return false
}

// Lock and Unlock use key 0, so that all threads contend for the same lock.
func (l *multiLock) Lock()   { l.one = l.m.Lock(0) }
func (l *multiLock) Unlock() { l.one.Unlock() }

// Pairs makes n pairs of lock and unlock, with each key from 0 to l.mask in turn.
func (l *multiLock) Pairs(n int, counter *uint64) {
	for i := range n {
		h := l.m.Lock(uint64(i) & l.mask)
		*counter++
		h.Unlock()
	}
}

// keysPerBucket is the number of keys for each bucket of a MultiLock in a waiters cell. In this cell, each goroutine
// waits for its own key.
const keysPerBucket = 8

func openKeyCrowd(w *bench.Worker, _ int) (any, error) {
	a, err := JoinArena(w)
	if err != nil {
		return nil, err
	}
	// The keys of a bucket are in a list. With more keys, there are more buckets, so that the lists stay short.
	opts := &prims.MultiLockOptions{Buckets: max(64, int(w.N)/keysPerBucket)}
	m, err := prims.OpenMultiLock(a, "multilock", opts)
	if err != nil {
		return nil, err
	}
	holds := make([]prims.Hold, w.N)
	for i := range holds {
		holds[i] = m.Lock(uint64(i))
	}
	return waitCrowd{
		wait: func(ctx context.Context, i int) error {
			h, err := m.LockContext(ctx, uint64(i))
			if err == nil {
				h.Unlock()
			}
			return err
		},
		release: func() {
			for _, h := range holds {
				h.Unlock()
			}
		},
	}, nil
}
