//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// rwStages has the RWMutexes that are open in this process, for each stage. A stage has the objects of an
// arena, and carries out orders on them.
var rwStages struct {
	sync.Mutex
	of map[*stage]map[string]*prims.RWMutex
}

func (s *stage) rwmutex(o order) (*prims.RWMutex, error) {
	rwStages.Lock()
	defer rwStages.Unlock()
	if rwStages.of == nil {
		rwStages.of = map[*stage]map[string]*prims.RWMutex{}
	}
	open := rwStages.of[s]
	if open == nil {
		open = map[string]*prims.RWMutex{}
		rwStages.of[s] = open
	}
	if m := open[o.Object]; m != nil {
		return m, nil
	}
	opts := &prims.RWMutexOptions{Policy: o.Policy}
	if o.Op == "rwopen" && o.N == 1 {
		opts.Repair = func() error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.repairs++
			return nil
		}
	}
	m, err := prims.OpenRWMutex(s.a, o.Object, opts)
	if err == nil {
		open[o.Object] = m
	}
	return m, err
}

// rwPair is the data that an RWMutex guards in tests: two numbers that differ only while a writer changes them.
type rwPair struct {
	One, Two atomic.Int64
	Torn     atomic.Int64 // how often a reader saw them differ
	Reads    atomic.Int64
	Inside   atomic.Int64 // a sum over the goroutines that hold the lock: 1 for a reader, 1<<20 for a writer
	Upgrade  atomic.Int64 // how many upgradable holds there are
}

// upgradable runs f for a caller that has the upgradable hold. It checks that there is no second upgradable
// hold.
func (p *rwPair) upgradable(f func()) {
	if p.Upgrade.Add(1) != 1 {
		p.Torn.Add(1)
	}
	f()
	p.Upgrade.Add(-1)
}

func (p *rwPair) read() {
	if n := p.Inside.Add(1); n >= 1<<20 {
		p.Torn.Add(1)
	}
	one := p.One.Load()
	if rand.IntN(8) == 0 {
		runtime.Gosched()
	}
	if p.Two.Load() != one {
		p.Torn.Add(1)
	}
	p.Reads.Add(1)
	p.Inside.Add(-1)
}

func (p *rwPair) write() {
	if n := p.Inside.Add(1 << 20); n != 1<<20 {
		p.Torn.Add(1)
	}
	n := p.One.Add(1)
	if rand.IntN(8) == 0 {
		runtime.Gosched()
	}
	p.Two.Store(n)
	p.Inside.Add(-1 << 20)
}

func (s *stage) performRWMutex(ctx context.Context, o order, a *answer) error {
	m, err := s.rwmutex(o)
	if err != nil {
		return err
	}
	switch o.Op {
	case "rwopen":
	case "rwlock":
		m.Lock()
	case "rwlockctx":
		return m.LockContext(ctx)
	case "rwtrylock":
		a.OK = m.TryLock()
	case "rwunlock":
		m.Unlock()
	case "rwrlock":
		m.RLock()
	case "rwrlockctx":
		return m.RLockContext(ctx)
	case "rwtryrlock":
		a.OK = m.TryRLock()
	case "rwrunlock":
		m.RUnlock()
	case "rwdowngrade":
		m.Downgrade()
	case "rwulock":
		m.LockUpgradable()
	case "rwulockctx":
		return m.LockUpgradableContext(ctx)
	case "rwtryulock":
		a.OK = m.TryLockUpgradable()
	case "rwuunlock":
		m.UnlockUpgradable()
	case "rwupgrade":
		m.Upgrade()
	case "rwupgradectx":
		return m.UpgradeContext(ctx)
	case "rwtryupgrade":
		a.OK = m.TryUpgrade()
	case "rwdowngradeu": // from writing to upgradable
		m.DowngradeToUpgradable()
	case "rwdowngrader": // from upgradable to reading
		m.DowngradeToRead()
	case "rwrecover": // N says what the repair does: 0 succeeds, 1 fails, 2 panics, 3 fails when its context ends
		return m.RecoverContext(ctx, func() error {
			a.OK = true // the repair has run
			switch o.N {
			case 1:
				return errRepair
			case 2:
				panic("the repair panics")
			case 3:
				<-ctx.Done()
				return errRepair
			}
			return nil
		})
	case "rwrepairs": // how often the Repair of the options has run
		s.mu.Lock()
		a.N = uint64(s.repairs)
		s.mu.Unlock()
	case "rwwaiters":
		a.N = uint64(m.Waiters())
	case "rwstate":
		st := m.State()
		a.Text, a.OK, a.Who, a.N = st.Word, st.Held, st.Owner, uint64(st.Readers)
		return st.Err
	case "rwclose":
		return m.Close()
	case "rwleft":
		a.Text = m.Left()
	case "rwmix":
		// Start o.Token goroutines that do o.N steps each. Of 100 steps, 86 read, 4 take an upgradable hold, 5 write,
		// 4 try to read, and 1 tries to write.
		p, err := arena.Value[rwPair](s.a, "pair")
		if err != nil {
			return err
		}
		var wg sync.WaitGroup
		var writes atomic.Int64
		for range int(o.Token) {
			wg.Go(func() {
				for range o.N {
					switch k := rand.IntN(100); {
					case k < 86:
						m.RLock()
						p.read()
						m.RUnlock()
					case k < 90:
						if !m.TryLockUpgradable() {
							m.LockUpgradable()
						}
						p.upgradable(func() {
							p.read()
							if k == 86 && m.TryUpgrade() || k == 87 {
								if k == 87 {
									m.Upgrade()
								}
								p.write()
								writes.Add(1)
								m.DowngradeToUpgradable()
								p.read()
							}
						})
						switch k {
						case 88:
							m.DowngradeToRead()
							p.read()
							m.RUnlock()
						case 89:
							m.Upgrade()
							p.write()
							writes.Add(1)
							m.Unlock()
						default:
							m.UnlockUpgradable()
						}
					case k < 95:
						m.Lock()
						p.write()
						writes.Add(1)
						if k == 94 {
							m.Downgrade()
							p.read()
							m.RUnlock()
						} else {
							m.Unlock()
						}
					case k < 99:
						if m.TryRLock() {
							p.read()
							m.RUnlock()
						}
					default:
						if m.TryLock() {
							p.write()
							writes.Add(1)
							m.Unlock()
						}
					}
				}
			})
		}
		wg.Wait()
		a.N = uint64(writes.Load())
	case "rwgiveup": // starts o.Token goroutines that do o.N steps each, with contexts that end soon
		p, err := arena.Value[rwPair](s.a, "pair")
		if err != nil {
			return err
		}
		var wg sync.WaitGroup
		var gaveUp, got atomic.Int64
		for i := range int(o.Token) {
			wg.Go(func() {
				for range o.N {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(int(o.Limit))))
					var err error
					if i%3 == 0 {
						if err = m.LockContext(ctx); err == nil {
							p.write()
							for end := time.Now().Add(time.Duration(rand.IntN(int(o.Limit)))); time.Now().Before(end); {
							}
							m.Unlock()
						}
					} else {
						if err = m.RLockContext(ctx); err == nil {
							p.read()
							for end := time.Now().Add(time.Duration(rand.IntN(int(o.Limit)))); time.Now().Before(end); {
							}
							m.RUnlock()
						}
					}
					switch err {
					case nil:
						got.Add(1)
					case context.DeadlineExceeded:
						gaveUp.Add(1)
					default:
						panic(err)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		a.N, a.Text = uint64(gaveUp.Load()), fmt.Sprintf("%d got it, %d gave up", got.Load(), gaveUp.Load())
	case "rwread": // o.N goroutines whose reads overlap, until rwPair.One is at least o.Token
		p, err := arena.Value[rwPair](s.a, "pair")
		if err != nil {
			return err
		}
		var wg sync.WaitGroup
		for range o.N {
			wg.Go(func() {
				for p.One.Load() < int64(o.Token) {
					m.RLock()
					p.Reads.Add(1)
					for end := time.Now().Add(200 * time.Microsecond); time.Now().Before(end); {
						runtime.Gosched()
					}
					m.RUnlock()
				}
			})
		}
		wg.Wait()
	default:
		panic("no such order: " + o.Op)
	}
	return nil
}
