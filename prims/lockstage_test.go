//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// lockStage is what a lock actor uses: FairMutexes and MultiLocks.
type lockStage struct {
	a *arena.Arena
	contexts

	mu      sync.Mutex
	fair    map[string]*prims.FairMutex
	multi   map[string]*prims.MultiLock
	pending map[int]*prims.Pending
	holds   map[string]prims.Holds
}

func init() {
	registerActor("lock-actor", func(a *arena.Arena) stageOf[order] {
		return &lockStage{
			a: a, fair: map[string]*prims.FairMutex{}, multi: map[string]*prims.MultiLock{},
			pending: map[int]*prims.Pending{}, holds: map[string]prims.Holds{},
		}
	})
}

// lockActor starts an actor in a separate process. It carries out the test's orders.
func lockActor(t testing.TB, a *arena.Arena, label string) *actor {
	t.Helper()
	return actorOf(t, a, "lock-actor", label)
}

func (s *lockStage) perform(o order, a *answer) error {
	ctx := s.contexts.begin(o.ID, o.Limit, o.Done)
	if o.Op == "cancel" {
		s.contexts.end(o.N)
		return nil
	}
	if o.Op[0] == 'f' {
		return s.performFair(ctx, o, a)
	}
	return s.performMulti(ctx, o, a)
}

func (s *lockStage) performFair(ctx context.Context, o order, a *answer) error {
	s.mu.Lock()
	f := s.fair[o.Object]
	if f == nil {
		var err error
		opt := &prims.FairMutexOptions{Policy: o.Policy}
		if o.Op == "frepairs" {
			opt.Repair = func() error {
				a.OK = true
				if o.N == 1 {
					return errRepair
				}
				return nil
			}
		}
		if f, err = prims.OpenFairMutex(s.a, o.Object, opt); err != nil {
			s.mu.Unlock()
			return err
		}
		s.fair[o.Object] = f
	}
	p := s.pending[o.N]
	s.mu.Unlock()
	switch o.Op {
	case "fopen":
	case "flock", "frepairs":
		f.Lock()
	case "flockctx":
		return f.LockContext(ctx)
	case "ftry":
		a.OK = f.TryLock()
	case "funlock":
		f.Unlock()
	case "fasync":
		p := f.LockAsync()
		s.mu.Lock()
		s.pending[o.N] = p
		s.mu.Unlock()
	case "fawait":
		return p.Wait()
	case "fcancel":
		a.OK = p.Cancel()
	case "frecover":
		return f.RecoverContext(ctx, func() error { return s.repair(o, a) })
	case "fduel":
		return duelPartner(s.a, o.N, func() func() { f.Lock(); return f.Unlock })
	case "fspin": // locks and unlocks the FairMutex N times
		for range o.N {
			f.Lock()
			f.Unlock()
		}
	default:
		panic("no such order: " + o.Op)
	}
	return nil
}

func (s *lockStage) repair(o order, a *answer) error {
	a.OK = true
	switch o.N {
	case 1:
		return errRepair
	case 2:
		panic("the repair panics")
	case 3:
		select {}
	}
	return nil
}

func (s *lockStage) performMulti(ctx context.Context, o order, a *answer) error {
	s.mu.Lock()
	x := s.multi[o.Object]
	if x == nil {
		var err error
		if x, err = prims.OpenMultiLock(s.a, o.Object, &prims.MultiLockOptions{Policy: o.Policy}); err != nil {
			s.mu.Unlock()
			return err
		}
		s.multi[o.Object] = x
	}
	slot := fmt.Sprint(o.Object, o.Token)
	held := s.holds[slot]
	s.mu.Unlock()
	keep := func(h prims.Holds, err error) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil {
			s.holds[slot] = h
		}
		return err
	}
	switch o.Op {
	case "mopen":
	case "mlock":
		return keep(prims.Holds{x.Lock(o.Token)}, nil)
	case "mlockctx":
		h, err := x.LockContext(ctx, o.Token)
		return keep(prims.Holds{h}, err)
	case "mtry":
		h, ok := x.TryLock(o.Token)
		if a.OK = ok; ok {
			return keep(prims.Holds{h}, nil)
		}
	case "mall": // locks N keys, from Token on; the argument has the last key first
		keys := make([]uint64, o.N)
		for i := range keys {
			keys[i] = o.Token + uint64(o.N-1-i)
		}
		return keep(x.LockAllContext(ctx, keys...))
	case "munlock":
		held.Unlock()
	case "mrecover":
		return x.RecoverContext(ctx, o.Token, func() error { return s.repair(o, a) })
	case "mduel":
		return duelPartner(s.a, o.N, func() func() { return x.Lock(o.Token).Unlock })
	case "msets": // locks and unlocks N sets of keys
		return lockSets(x, o.Token, o.N)
	case "mleave": // closes the arena
		return s.a.Close()
	case "mspin": // locks and unlocks the key N times
		for range o.N {
			x.Lock(o.Token).Unlock()
		}
	default:
		panic("no such order: " + o.Op)
	}
	return nil
}
