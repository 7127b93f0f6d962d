//go:build linux && amd64

package stepkill_test

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	for _, policy := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease} {
		of := func(name string) string {
			name += " " + policy.String()
			if policy == prims.PolicyReport {
				recoverable[name] = true
			}
			return name
		}
		addLock(of("mutex"), func(a *arena.Arena) (*aLock, error) {
			m, err := prims.OpenMutex(a, "m", &prims.MutexOptions{Policy: policy})
			if err != nil {
				return nil, err
			}
			return &aLock{m.LockContext, m.TryLock, m.Unlock, m.RecoverContext, m.Close}, nil
		})
		addLock(of("cohortmutex"), func(a *arena.Arena) (*aLock, error) {
			m, err := prims.OpenCohortMutex(a, "m", &prims.CohortMutexOptions{Policy: policy, Nodes: 2})
			if err != nil {
				return nil, err
			}
			return &aLock{m.LockContext, m.TryLock, m.Unlock, m.RecoverContext, m.Close}, nil
		})
		addLock(of("fairmutex"), func(a *arena.Arena) (*aLock, error) {
			m, err := prims.OpenFairMutex(a, "m", &prims.FairMutexOptions{Policy: policy})
			if err != nil {
				return nil, err
			}
			return &aLock{m.LockContext, m.TryLock, m.Unlock, m.RecoverContext, m.Close}, nil
		})
		addLock(of("rwmutex writer"), func(a *arena.Arena) (*aLock, error) {
			m, err := prims.OpenRWMutex(a, "m", &prims.RWMutexOptions{Policy: policy})
			if err != nil {
				return nil, err
			}
			return &aLock{m.LockContext, m.TryLock, m.Unlock, m.RecoverContext, m.Close}, nil
		})
		addLock(of("spinlock"), func(a *arena.Arena) (*aLock, error) {
			m, err := prims.OpenSpinLock(a, "m", &prims.SpinLockOptions{Policy: policy})
			if err != nil {
				return nil, err
			}
			return &aLock{m.LockContext, m.TryLock, m.Unlock, m.RecoverContext, m.Close}, nil
		})
		addLock(of("rwspinlock writer"), func(a *arena.Arena) (*aLock, error) {
			m, err := prims.OpenRWSpinLock(a, "m", &prims.RWSpinLockOptions{Policy: policy})
			if err != nil {
				return nil, err
			}
			return &aLock{m.LockContext, m.TryLock, m.Unlock, m.RecoverContext, m.Close}, nil
		})
		addLock(of("multilock"), func(a *arena.Arena) (*aLock, error) {
			m, err := prims.OpenMultiLock(a, "m", &prims.MultiLockOptions{Policy: policy, Buckets: 2})
			if err != nil {
				return nil, err
			}
			const key = 7
			m.State(key)        // the first call checks the types of the words, so it has too many instructions to step
			var held prims.Hold // the hold of this process, while it holds the key
			return &aLock{
				lock: func(ctx context.Context) error {
					h, err := m.LockContext(ctx, key)
					if err == nil {
						held = h
					}
					return err
				},
				try: func() bool {
					h, ok := m.TryLock(key)
					if ok {
						held = h
					}
					return ok
				},
				unlock:  func() { held.Unlock() },
				recover: func(ctx context.Context, f func() error) error { return m.RecoverContext(ctx, key, f) },
				close:   m.Close,
			}, nil
		})
	}
	addLock("semaphore", func(a *arena.Arena) (*aLock, error) {
		s, err := prims.OpenSemaphore(a, "s", 3, nil)
		if err != nil {
			return nil, err
		}
		return &aLock{
			lock:   func(ctx context.Context) error { return s.AcquireContext(ctx, 2) },
			try:    func() bool { return s.TryAcquire(2) },
			unlock: func() { s.Release(2) },
			close:  s.Close,
		}, nil
	})

	addLock("mutex near", func(a *arena.Arena) (*aLock, error) {
		m, err := prims.OpenMutex(a, "m", &prims.MutexOptions{Policy: prims.PolicyRelease, Contention: prims.Contention{NearWakes: true}})
		if err != nil {
			return nil, err
		}
		return &aLock{m.LockContext, m.TryLock, m.Unlock, m.RecoverContext, m.Close}, nil
	})
	// The permits of a transferable Semaphore belong to no process, so a death does not return them. Survivors
	// release permits instead.
	each("semaphore transferable/release", func(a *arena.Arena) (part, error) {
		s, err := prims.OpenSemaphore(a, "t", 1<<40, &prims.SemaphoreOptions{Mode: prims.SemaphoreTransferable, Initial: -1})
		if err != nil {
			return part{}, err
		}
		p := part{
			op: func() { s.Release(1) }, wait: waits(func(ctx context.Context) error { return s.AcquireContext(ctx, 1) }),
			rescue: func() { s.Release(1) }, close: s.Close,
		}
		p.use = func() error {
			s.Release(1)
			if err := p.wait(); err != nil {
				return err
			}
			for s.TryAcquire(1) {
			}
			return nil
		}
		return p, nil
	}, 0, 3)

	// A reader waits for a writer, and a writer waits for a reader.
	rw := func(name string, open func(a *arena.Arena) (w, r *aLock, err error)) {
		for _, reader := range []bool{true, false} {
			with := func(l func(me, other *aLock, p *part)) func(a *arena.Arena) (part, error) {
				return func(a *arena.Arena) (part, error) {
					w, r, err := open(a)
					if err != nil {
						return part{}, err
					}
					if !reader {
						r, w = w, r
					}
					p := part{close: w.close}
					p.use = func() error {
						if err := w.use(); err != nil {
							return err
						}
						return r.use()
					}
					p.wait = w.turn
					l(r, w, &p)
					return p, nil
				}
			}
			role := map[bool]string{true: "reader", false: "writer"}[reader]
			bg := context.Background()
			addScene(scene{name: name + "/" + role + " locks", open: with(func(me, _ *aLock, p *part) {
				p.op = func() { me.lock(bg) }
			})})
			addScene(scene{name: name + "/" + role + " tries", open: with(func(me, _ *aLock, p *part) {
				p.op = func() { me.try() }
			})})
			addScene(scene{name: name + "/" + role + " waits", waiters: 1, open: with(func(me, other *aLock, p *part) {
				p.hold = func() { other.take(bg) }
				p.free = other.unlock
				p.op = func() { me.lock(bg) }
			})})
			addScene(scene{name: name + "/" + role + " gives up", waiters: 1, open: with(func(me, other *aLock, p *part) {
				p.hold = func() { other.take(bg) }
				p.free, p.late = other.unlock, true
				p.op = func() {
					ctx, cancel := context.WithTimeout(bg, 3e6)
					defer cancel()
					me.lock(ctx)
				}
			})})
			for _, n := range []int{0, 2, 11} {
				addScene(scene{name: name + "/" + role + " unlocks" + map[int]string{2: ", 2 wait", 11: ", 11 wait"}[n], waiters: n, open: with(func(me, _ *aLock, p *part) {
					p.prep = func() { me.take(bg) }
					p.op = me.unlock
				})})
			}
		}
	}
	rw("rwmutex", func(a *arena.Arena) (w, r *aLock, err error) {
		m, err := prims.OpenRWMutex(a, "m", nil)
		if err != nil {
			return nil, nil, err
		}
		return &aLock{m.LockContext, m.TryLock, m.Unlock, m.RecoverContext, m.Close}, &aLock{m.RLockContext, m.TryRLock, m.RUnlock, m.RecoverContext, nil}, nil
	})
	rw("rwspinlock", func(a *arena.Arena) (w, r *aLock, err error) {
		m, err := prims.OpenRWSpinLock(a, "m", nil)
		if err != nil {
			return nil, nil, err
		}
		return &aLock{m.LockContext, m.TryLock, m.Unlock, m.RecoverContext, m.Close}, &aLock{m.RLockContext, m.TryRLock, m.RUnlock, m.RecoverContext, nil}, nil
	})
	spin := func(what string, waiters int, f func(m *prims.RWSpinLock, p *part)) {
		var opts *prims.RWSpinLockOptions
		if strings.Contains(what, ", ") {
			opts = &prims.RWSpinLockOptions{Spin: -1} // a waiter sleeps at once
		}
		addScene(scene{name: "rwspinlock/" + what, waiters: waiters, open: func(a *arena.Arena) (part, error) {
			m, err := prims.OpenRWSpinLock(a, "m", opts)
			if err != nil {
				return part{}, err
			}
			w := &aLock{m.LockContext, m.TryLock, m.Unlock, m.RecoverContext, m.Close}
			p := part{wait: w.turn, use: w.use, close: m.Close}
			f(m, &p)
			return p, nil
		}})
	}
	spin("upgrade", 2, func(m *prims.RWSpinLock, p *part) { p.prep, p.op = m.LockUpgradable, m.Upgrade })
	spin("downgrade", 2, func(m *prims.RWSpinLock, p *part) { p.prep, p.op = m.Lock, m.Downgrade })
	spin("downgrade to upgrade", 2, func(m *prims.RWSpinLock, p *part) { p.prep, p.op = m.Lock, m.DowngradeToUpgradable })
	spin("downgrade upgrade", 2, func(m *prims.RWSpinLock, p *part) { p.prep, p.op = m.LockUpgradable, m.DowngradeToRead })
	spin("lock upgrade", 0, func(m *prims.RWSpinLock, p *part) { p.op = m.LockUpgradable })
	spin("try lock upgrade", 0, func(m *prims.RWSpinLock, p *part) { p.op = func() { m.TryLockUpgradable() } })
	spin("unlock upgrade", 2, func(m *prims.RWSpinLock, p *part) { p.prep, p.op = m.LockUpgradable, m.UnlockUpgradable })
	spin("try upgrade", 0, func(m *prims.RWSpinLock, p *part) { p.prep, p.op = m.LockUpgradable, func() { m.TryUpgrade() } })
	spin("lock upgrade, waits", 1, func(m *prims.RWSpinLock, p *part) {
		p.hold, p.op, p.free = m.Lock, m.LockUpgradable, m.Unlock
	})
	spin("lock upgrade, gives up", 1, func(m *prims.RWSpinLock, p *part) {
		p.hold, p.free, p.late = m.Lock, m.Unlock, true
		p.op = briefly(func(ctx context.Context) { m.LockUpgradableContext(ctx) })
	})
	// A reader has the lock.
	spin("upgrade, waits", 1, func(m *prims.RWSpinLock, p *part) {
		p.hold, p.prep, p.op, p.free = m.RLock, m.LockUpgradable, m.Upgrade, m.RUnlock
	})
	spin("upgrade, gives up", 1, func(m *prims.RWSpinLock, p *part) {
		p.hold, p.prep, p.free, p.late = m.RLock, m.LockUpgradable, m.RUnlock, true
		p.op = briefly(func(ctx context.Context) { m.UpgradeContext(ctx) })
	})
	addScene(scene{name: "rwmutex/downgrade", waiters: 2, open: func(a *arena.Arena) (part, error) {
		m, err := prims.OpenRWMutex(a, "m", nil)
		if err != nil {
			return part{}, err
		}
		w := &aLock{m.LockContext, m.TryLock, m.Unlock, m.RecoverContext, m.Close}
		r := &aLock{m.RLockContext, m.TryRLock, m.RUnlock, m.RecoverContext, nil}
		return part{prep: m.Lock, op: m.Downgrade, wait: r.turn, use: w.use, close: m.Close}, nil
	}})
	upgradable := func(what string, waiters int, f func(m *prims.RWMutex, p *part)) {
		var opts *prims.RWMutexOptions
		if strings.Contains(what, ", ") {
			opts = &prims.RWMutexOptions{Spin: -1} // a waiter sleeps at once
		}
		addScene(scene{name: "rwmutex/" + what, waiters: waiters, open: func(a *arena.Arena) (part, error) {
			m, err := prims.OpenRWMutex(a, "m", opts)
			if err != nil {
				return part{}, err
			}
			w := &aLock{m.LockContext, m.TryLock, m.Unlock, m.RecoverContext, m.Close}
			u := &aLock{m.LockUpgradableContext, m.TryLockUpgradable, m.UnlockUpgradable, m.RecoverContext, m.Close}
			p := part{wait: w.turn, close: m.Close}
			p.use = func() error {
				if err := w.use(); err != nil {
					return err
				}
				return u.use()
			}
			f(m, &p)
			return p, nil
		}})
	}
	upgradable("lock upgradable", 0, func(m *prims.RWMutex, p *part) { p.op = m.LockUpgradable })
	upgradable("try lock upgradable", 0, func(m *prims.RWMutex, p *part) { p.op = func() { m.TryLockUpgradable() } })
	upgradable("unlock upgradable", 2, func(m *prims.RWMutex, p *part) { p.prep, p.op = m.LockUpgradable, m.UnlockUpgradable })
	upgradable("upgrade", 2, func(m *prims.RWMutex, p *part) { p.prep, p.op = m.LockUpgradable, m.Upgrade })
	upgradable("try upgrade", 0, func(m *prims.RWMutex, p *part) { p.prep, p.op = m.LockUpgradable, func() { m.TryUpgrade() } })
	upgradable("downgrade to upgradable", 2, func(m *prims.RWMutex, p *part) { p.prep, p.op = m.Lock, m.DowngradeToUpgradable })
	upgradable("downgrade to read", 2, func(m *prims.RWMutex, p *part) { p.prep, p.op = m.LockUpgradable, m.DowngradeToRead })
	upgradable("lock upgradable, waits", 1, func(m *prims.RWMutex, p *part) {
		p.hold, p.op, p.free = m.Lock, m.LockUpgradable, m.Unlock
	})
	upgradable("lock upgradable, gives up", 1, func(m *prims.RWMutex, p *part) {
		p.hold, p.free, p.late = m.Lock, m.Unlock, true
		p.op = briefly(func(ctx context.Context) { m.LockUpgradableContext(ctx) })
	})
	// A reader has the lock.
	upgradable("upgrade, waits", 1, func(m *prims.RWMutex, p *part) {
		p.hold, p.prep, p.op, p.free = m.RLock, m.LockUpgradable, m.Upgrade, m.RUnlock
	})
	upgradable("upgrade, gives up", 1, func(m *prims.RWMutex, p *part) {
		p.hold, p.prep, p.free, p.late = m.RLock, m.LockUpgradable, m.RUnlock, true
		p.op = briefly(func(ctx context.Context) { m.UpgradeContext(ctx) })
	})
	for what, does := range map[string]string{
		"lock upgradable": "lock upgradable", "try lock upgradable": "try lock upgradable", "unlock upgradable": "unlock upgradable",
		"upgrade": "upgrade", "upgrade, waits": "upgrade", "upgrade, gives up": "upgrade briefly", "try upgrade": "try upgrade",
		"downgrade to upgradable": "downgrade to upgradable", "downgrade to read": "downgrade to read",
	} {
		i := slices.IndexFunc(scenes, func(s scene) bool { return s.name == "rwmutex/"+what })
		addSceneInC(scenes[i], "upgradable", does)
	}
	keys := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	freshKeys := []uint64{5<<32 | 6, 7<<32 | 8, 9<<32 | 10, 11<<32 | 12}
	// all adds a scene in which waiters and newcomers lock all keys. If fresh is true, each kill gets a new MultiLock,
	// so that no key has an entry at the beginning.
	all := func(name string, fresh bool, waiters int, f func(m *prims.MultiLock, p *part)) {
		add := each
		if fresh {
			add = eachFresh
		}
		add("multilock/"+name, func(a *arena.Arena) (part, error) {
			of, keys := "m", keys
			if fresh {
				of, keys = object, append(freshKeys, keys...)
			}
			m, err := prims.OpenMultiLock(a, of, &prims.MultiLockOptions{Buckets: 1, Spin: -1})
			if err != nil {
				return part{}, err
			}
			all := func() error {
				ctx, cancel := limited()
				defer cancel()
				for {
					h, err := m.LockAllContext(ctx, keys...)
					if err == nil {
						h.Unlock()
						return nil
					}
					if err := told(err); err != nil {
						return err
					}
					for _, k := range keys {
						if err := m.RecoverContext(ctx, k, func() error { return nil }); err != nil {
							return err
						}
					}
				}
			}
			m.State(keys[0]) // the first call has too many instructions to step
			p := part{wait: all, use: all, close: m.Close}
			if fresh {
				p.prep = func() { m.Lock(20).Unlock() }
				p.close = func() error { return errors.Join(m.Close(), a.Delete(of)) }
			}
			f(m, &p)
			return p, nil
		}, waiters)
	}
	lockAll := func(m *prims.MultiLock, ctx context.Context) {
		if h, err := m.LockAllContext(ctx, keys...); err == nil {
			h.Unlock()
		}
	}
	all("lock all", false, 1, func(m *prims.MultiLock, p *part) {
		p.op = func() { lockAll(m, bg) }
	})
	// Another process has locked key 7. So the victim waits for this key while it holds the keys before it.
	for _, what := range []string{"waits", "gives up"} {
		all("lock all, "+what, false, 0, func(m *prims.MultiLock, p *part) {
			var h prims.Hold
			p.hold, p.free = func() { h = m.Lock(7) }, func() { h.Unlock() }
			p.op = func() { lockAll(m, bg) }
			if what == "gives up" {
				p.late, p.op = true, briefly(func(ctx context.Context) { lockAll(m, ctx) })
			}
		})
	}
	// In these scenes the victim locks keys that have no entry. Such a key gets an unused entry, the entry of a key
	// that nobody has locked now, or an entry in a block that the victim adds.
	all("fresh key", true, 0, func(m *prims.MultiLock, p *part) {
		p.op = func() { m.Lock(freshKeys[0]).Unlock() }
	})
	all("fresh keys", true, 2, func(m *prims.MultiLock, p *part) {
		p.op = func() {
			for _, key := range freshKeys {
				m.Lock(key).Unlock()
			}
		}
	})
	all("fresh key, full bucket", true, 0, func(m *prims.MultiLock, p *part) {
		// A survivor has locked so many keys that all entries of the bucket, and of the bucket's first block, are in
		// use. The victim has found this block before, because prep calls State.
		var h prims.Holds
		p.hold, p.free, p.late = func() { h = m.LockAll(1, 2, 3, 4, 5, 6, 7) }, func() { h.Unlock() }, true
		p.prep = func() { m.State(1) }
		p.op = func() { m.Lock(freshKeys[0]).Unlock() }
	})
}
