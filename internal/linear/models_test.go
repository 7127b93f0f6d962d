//go:build linux

package linear

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// model returns a model with a state of type S. The function step returns the states to which a call with the result r
// may lead, or none if the call cannot have had this result. A call that never returned may have had no effect. A call
// of a process that died takes effect before the death, or not at all.
func model[S comparable](initial S, step func(s S, c call, r result) []S) porcupine.Model {
	type state struct {
		s    S
		dead uint64 // bit i says that process i has died
	}
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{s: initial}} },
		Step: func(st, input, output any) (next []any) {
			s, c, r := st.(state), input.(call), output.(result)
			if r.Open {
				next = append(next, s)
			}
			if s.dead>>c.Proc&1 != 0 {
				return next // the process had died before
			}
			if c.Op == opDies {
				s.dead |= 1 << c.Proc
			}
			for _, to := range step(s.s, c, r) {
				next = append(next, state{to, s.dead})
			}
			return next
		},
		Equal: func(x, y any) bool { return x == y },
		DescribeOperation: func(input, output any) string {
			return fmt.Sprintf("%+v -> %+v", input, output)
		},
	}
	return m.ToModel()
}

// briefly calls f with a context that ends soon, at random after 50 to 750 µs.
func briefly(r *rand.Rand, f func(ctx context.Context) error) result {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(50+r.IntN(700))*time.Microsecond)
	defer cancel()
	return done(f(ctx))
}

func pick(r *rand.Rand, fs ...func()) { fs[r.IntN(len(fs))]() }

func pauses(r *rand.Rand) {
	for range r.IntN(300) {
		_ = r.Uint64()
	}
}

// holding is the state of a lock.
type holding struct {
	by             int     // the number of the process that has locked for writing, plus 1; 0 if there is none
	notRecoverable bool    // the lock is owner-dead, and no Recover has succeeded since
	readers        [3]int8 // how many read holds each process has
	up             int     // the number of the process with the upgradable hold, plus 1; 0 if there is none
}

// stepLock returns the sequential specification of the calls of locks. The parameter reports is true if the policy is
// PolicyReport.
func stepLock(reports bool) func(s holding, c call, r result) []holding {
	return func(s holding, c call, r result) []holding {
		me := c.Proc + 1
		free, noReaders := s.by == 0, s.readers == [3]int8{}
		switch c.Op {
		case "ulock", "tryulock":
			switch {
			case r.Err == ended:
				return []holding{s}
			case r.Err == ownerDead && s.notRecoverable:
				return []holding{s}
			case r.Err != "" && !r.Open:
				return nil
			case !r.OK && !r.Open: // TryLockUpgradable
				if c.Beside || !free || s.notRecoverable || s.up != 0 {
					return []holding{s}
				}
				return nil
			case free && !s.notRecoverable && s.up == 0:
				s.up = me
				return []holding{s}
			}
			return nil
		case "upgrade", "tryupgrade":
			switch {
			case s.up != me:
				return nil
			case r.Err == ended:
				return []holding{s}
			case !r.OK && !r.Open: // TryUpgrade
				if c.Beside || !noReaders {
					return []holding{s}
				}
				return nil
			case free && noReaders:
				s.up, s.by = 0, me
				return []holding{s}
			}
			return nil
		case "uunlock":
			if s.up != me {
				return nil
			}
			s.up = 0
			return []holding{s}
		case "toupgradable":
			if s.by != me {
				return nil
			}
			s.by, s.up = 0, me
			return []holding{s}
		case "toread":
			if s.up != me {
				return nil
			}
			s.up = 0
			s.readers[c.Proc]++
			return []holding{s}
		case "lock", "trylock":
			switch {
			case r.Err == ended:
				return []holding{s}
			case r.Err == ownerDead && s.notRecoverable:
				return []holding{s}
			case r.Err != "" && !r.Open:
				return nil
			case !r.OK && !r.Open: // TryLock
				if c.Arg == weak && c.Beside || !free || s.notRecoverable || !noReaders || s.up != 0 {
					return []holding{s}
				}
				return nil
			case free && !s.notRecoverable && noReaders && s.up == 0:
				s.by = me
				return []holding{s}
			}
			return nil
		case "unlock":
			if s.by != me {
				return nil
			}
			s.by = 0
			return []holding{s}
		case "rlock", "tryrlock":
			switch {
			case r.Err == ended:
				return []holding{s}
			case r.Err == ownerDead && s.notRecoverable:
				return []holding{s}
			case r.Err != "" && !r.Open:
				return nil
			case !r.OK && !r.Open:
				if c.Beside || !free || s.notRecoverable { // a writer may have been waiting
					return []holding{s}
				}
				return nil
			case free && !s.notRecoverable:
				s.readers[c.Proc]++
				return []holding{s}
			}
			return nil
		case "runlock":
			if s.readers[c.Proc] == 0 {
				return nil
			}
			s.readers[c.Proc]--
			return []holding{s}
		case "recover":
			if r.Err == ended {
				return []holding{s}
			}
			if !free || !noReaders || s.up != 0 || !r.OK && !r.Open {
				return nil
			}
			s.notRecoverable = false
			return []holding{s}
		case opDies:
			s.readers[c.Proc] = 0
			if s.up == me {
				s.up = 0
			}
			if s.by == me {
				s.by, s.notRecoverable = 0, reports
			}
			return []holding{s}
		}
		return nil
	}
}

// weak is an argument for calls of TryLock. It says that TryLock may fail while another call runs, even though the lock
// is free.
const weak = 1

type lockFuncs struct {
	lock, rlock     func(context.Context) error
	try, tryR       func() bool
	unlock, runlock func()
	recover         func(context.Context, func() error) error
	weak            uint64
	up              *upgradeFuncs // nil for a lock without upgradable holds
}

type upgradeFuncs struct {
	lock, upgrade              func(context.Context) error
	try, tryUpgrade            func() bool
	unlock, toUpgradable, read func()
}

func (l *lockFuncs) client() client {
	return func(r *rand.Rand, log func(string, uint64, func() result)) {
		held, ok := func(res *result, op string, f func() result) func() {
			return func() { log(op, l.weak, func() result { *res = f(); return *res }) }
		}, result{}
		excl := func(op string, f func() result) {
			held(&ok, op, f)()
			if ok.OK {
				pauses(r)
				log("unlock", 0, func() result { l.unlock(); return done(nil) })
			} else if ok.Err == ownerDead {
				log("recover", 0, func() result {
					return briefly(r, func(ctx context.Context) error { return l.recover(ctx, func() error { return nil }) })
				})
			}
		}
		shared := func(op string, f func() result) {
			held(&ok, op, f)()
			if ok.OK {
				pauses(r)
				log("runlock", 0, func() result { l.runlock(); return done(nil) })
			}
		}
		kinds := []func(){
			func() { excl("lock", func() result { return briefly(r, l.lock) }) },
			func() { excl("lock", func() result { return done(l.lock(context.Background())) }) },
			func() { excl("trylock", func() result { return result{OK: l.try()} }) },
		}
		if l.rlock != nil {
			kinds = append(kinds,
				func() { shared("rlock", func() result { return briefly(r, l.rlock) }) },
				func() { shared("rlock", func() result { return done(l.rlock(context.Background())) }) },
				func() { shared("tryrlock", func() result { return result{OK: l.tryR()} }) })
		}
		if u := l.up; u != nil {
			plain := func(op string, f func()) { log(op, 0, func() result { f(); return done(nil) }) }
			upgradable := func(op string, f func() result) {
				held(&ok, op, f)()
				if !ok.OK {
					if ok.Err == ownerDead {
						log("recover", 0, func() result {
							return briefly(r, func(ctx context.Context) error { return l.recover(ctx, func() error { return nil }) })
						})
					}
					return
				}
				pauses(r)
				switch r.IntN(5) {
				case 0:
					plain("uunlock", u.unlock)
					return
				case 1:
					plain("toread", u.read)
					pauses(r)
					plain("runlock", l.runlock)
					return
				case 2:
					held(&ok, "tryupgrade", func() result { return result{OK: u.tryUpgrade()} })()
				default:
					held(&ok, "upgrade", func() result { return briefly(r, u.upgrade) })()
				}
				if ok.OK {
					pauses(r)
					if r.IntN(2) == 0 {
						plain("unlock", l.unlock)
						return
					}
					plain("toupgradable", u.toUpgradable)
					pauses(r)
				}
				plain("uunlock", u.unlock)
			}
			kinds = append(kinds,
				func() { upgradable("ulock", func() result { return briefly(r, u.lock) }) },
				func() { upgradable("ulock", func() result { return done(u.lock(context.Background())) }) },
				func() { upgradable("tryulock", func() result { return result{OK: u.try()} }) })
		}
		pick(r, kinds...)
	}
}

var ok = result{OK: true}

func init() {
	for policy, reports := range map[prims.Policy]bool{prims.PolicyReport: true, prims.PolicyRelease: false} {
		subjects["mutex "+policy.String()] = subject{
			name: "mutex " + policy.String(), model: model(holding{}, stepLock(reports)),
			open: func(a *arena.Arena) (client, error) {
				m, err := prims.OpenMutex(a, "m", &prims.MutexOptions{Policy: policy})
				if err != nil {
					return nil, err
				}
				return (&lockFuncs{lock: m.LockContext, try: m.TryLock, unlock: m.Unlock, recover: m.RecoverContext}).client(), nil
			},
			bad: bad(call{Proc: 0, Op: "lock", Arg: 0}, ok, call{Proc: 1, Op: "trylock", Arg: 0}, ok),
		}
		subjects["rwmutex "+policy.String()] = subject{
			name: "rwmutex " + policy.String(), model: model(holding{}, stepLock(reports)),
			open: func(a *arena.Arena) (client, error) {
				m, err := prims.OpenRWMutex(a, "m", &prims.RWMutexOptions{Policy: policy})
				if err != nil {
					return nil, err
				}
				return (&lockFuncs{lock: m.LockContext, rlock: m.RLockContext, try: m.TryLock, tryR: m.TryRLock,
					unlock: m.Unlock, runlock: m.RUnlock, recover: m.RecoverContext, weak: weak,
					up: &upgradeFuncs{lock: m.LockUpgradableContext, upgrade: m.UpgradeContext, try: m.TryLockUpgradable, tryUpgrade: m.TryUpgrade,
						unlock: m.UnlockUpgradable, toUpgradable: m.DowngradeToUpgradable, read: m.DowngradeToRead}}).client(), nil
			},
			bad: bad(call{Proc: 0, Op: "rlock", Arg: 0}, ok, call{Proc: 1, Op: "rlock", Arg: 0}, ok, call{Proc: 0, Op: "runlock", Arg: 0}, ok, call{Proc: 2, Op: "lock", Arg: 0}, ok),
		}
	}
	addMultiLock()
	addSemaphore()
	addSequencer()
	addEvents()
	addQueue()
}

func addMultiLock() {
	const keys = 2
	step := stepLock(false)
	subjects["multilock"] = subject{
		name: "multilock",
		model: model([keys]holding{}, func(s [keys]holding, c call, r result) []([keys]holding) {
			if c.Op == opDies {
				for k := range s {
					s[k] = step(s[k], c, r)[0]
				}
				return [][keys]holding{s}
			}
			k := c.Arg
			c.Arg = weak // a TryLock of a MultiLock is weak
			var next [][keys]holding
			for _, to := range step(s[k], c, r) {
				s[k] = to
				next = append(next, s)
			}
			return next
		}),
		open: func(a *arena.Arena) (client, error) {
			x, err := prims.OpenMultiLock(a, "x", &prims.MultiLockOptions{Policy: prims.PolicyRelease, Buckets: 1})
			if err != nil {
				return nil, err
			}
			return func(r *rand.Rand, log func(string, uint64, func() result)) {
				key := uint64(r.IntN(keys))
				var h prims.Hold
				var res result
				lock := func(op string, f func() result) {
					log(op, key, func() result { res = f(); return res })
					if res.OK {
						pauses(r)
						log("unlock", key, func() result { h.Unlock(); return ok })
					}
				}
				with := func(ctx context.Context) (err error) { h, err = x.LockContext(ctx, key); return err }
				pick(r,
					func() { lock("lock", func() result { return briefly(r, with) }) },
					func() { lock("lock", func() result { return done(with(context.Background())) }) },
					func() {
						lock("trylock", func() result {
							var took bool
							h, took = x.TryLock(key)
							return result{OK: took}
						})
					})
			}, nil
		},
		bad: bad(call{Proc: 0, Op: "lock", Arg: 0}, ok, call{Proc: 0, Op: "lock", Arg: 1}, ok, call{Proc: 1, Op: "lock", Arg: 0}, ok),
	}
}

func addSemaphore() {
	const size = 3
	type permits [3]int8
	subjects["semaphore"] = subject{
		name: "semaphore",
		model: model(permits{}, func(s permits, c call, r result) []permits {
			n := int8(c.Arg)
			switch c.Op {
			case "acquire":
				if r.Err == ended {
					return []permits{s}
				}
				if !r.OK && !r.Open && r.Err == "" { // TryAcquire
					if c.Beside || s[0]+s[1]+s[2]+n > size {
						return []permits{s}
					}
					return nil
				}
				if r.Err != "" || s[0]+s[1]+s[2]+n > size {
					return nil
				}
				s[c.Proc] += n
				return []permits{s}
			case "release":
				if s[c.Proc] < n {
					return nil
				}
				s[c.Proc] -= n
				return []permits{s}
			case opDies:
				s[c.Proc] = 0
				return []permits{s}
			}
			return nil
		}),
		open: func(a *arena.Arena) (client, error) {
			s, err := prims.OpenSemaphore(a, "s", size, nil)
			if err != nil {
				return nil, err
			}
			return func(r *rand.Rand, log func(string, uint64, func() result)) {
				n := uint64(1 + r.IntN(size))
				var res result
				take := func(f func() result) { log("acquire", n, func() result { res = f(); return res }) }
				with := func(ctx context.Context) error { return s.AcquireContext(ctx, int64(n)) }
				pick(r,
					func() { take(func() result { return briefly(r, with) }) },
					func() { take(func() result { return done(with(context.Background())) }) },
					func() { take(func() result { return result{OK: s.TryAcquire(int64(n))} }) })
				if res.OK {
					pauses(r)
					log("release", n, func() result { s.Release(int64(n)); return ok })
				}
			}, nil
		},
		bad: bad(call{Proc: 0, Op: "acquire", Arg: 2}, ok, call{Proc: 1, Op: "acquire", Arg: 1}, ok, call{Proc: 2, Op: "acquire", Arg: 1}, ok),
	}
}

func addSequencer() {
	subjects["sequencer"] = subject{
		name: "sequencer",
		model: model(uint64(0), func(s uint64, c call, r result) []uint64 {
			switch c.Op {
			case "increment":
				if r.Out != s+1 && !r.Open {
					return nil
				}
				return []uint64{s + 1}
			case "advance":
				if r.OK != (c.Arg > s) && !r.Open {
					return nil
				}
				return []uint64{max(s, c.Arg)}
			case "value":
				if r.Out != s && !r.Open {
					return nil
				}
				return []uint64{s}
			case "wait":
				if r.OK && s < c.Arg {
					return nil
				}
				return []uint64{s}
			case opDies:
				return []uint64{s}
			}
			return nil
		}),
		open: func(a *arena.Arena) (client, error) {
			s, err := prims.OpenSequencer(a, "s", nil)
			if err != nil {
				return nil, err
			}
			return func(r *rand.Rand, log func(string, uint64, func() result)) {
				near := s.Value() + uint64(r.IntN(3))
				pick(r,
					func() { log("increment", 0, func() result { return result{OK: true, Out: s.Increment()} }) },
					func() { log("advance", near, func() result { return result{OK: s.Advance(near)} }) },
					func() { log("value", 0, func() result { return result{OK: true, Out: s.Value()} }) },
					func() {
						log("wait", near, func() result {
							return briefly(r, func(ctx context.Context) error { return s.WaitContext(ctx, near) })
						})
					})
			}, nil
		},
		bad: bad(call{Proc: 0, Op: "increment", Arg: 0}, result{OK: true, Out: 1}, call{Proc: 1, Op: "wait", Arg: 2}, ok),
	}
}

// stepEvent is the model of an Event that is not auto-reset. The state is whether the Event is set.
func stepEvent(set bool, c call, r result) []bool {
	switch c.Op {
	case "set":
		set = true
	case "reset":
		set = false
	case "isset":
		if r.OK != set && !r.Open {
			return nil
		}
	case "wait":
		if !set && (r.OK || r.Open) {
			return nil
		}
	}
	return []bool{set}
}

// tokens is the state of an auto-reset Event. The field n is the number of tokens, at most the number of counted waits
// plus 1. The field begun has a bit for each client whose wait has begun and not ended. The field waits has a bit for
// each client whose wait is counted.
type tokens struct {
	n            int8
	begun, waits uint8
}

func (s tokens) waiting() int8 { return int8(bits.OnesCount8(s.waits)) }

// ended returns the state after a wait of the client has ended. The parameter n is the number of tokens that are left.
func (s tokens) ended(client uint64, n int8) tokens {
	s.waits &^= 1 << client
	s.begun &^= 1 << client
	if s.n = n; s.waits == 0 {
		s.n = min(n, 1)
	}
	return s
}

const opBegins = "begins"

// stepAutoEvent is the model of an auto-reset Event, as design note 55 describes it. A wait has two steps: it begins,
// and it ends. The first step may count the wait or not. A wait that was not counted gets a token only if there are
// more tokens than counted waits.
func stepAutoEvent(s tokens, c call, r result) []tokens {
	waiting := s.waits>>c.Arg&1 != 0
	switch c.Op {
	case "set":
		if s.n <= s.waiting() {
			s.n++
		}
	case "reset":
		s.n = min(s.n, s.waiting())
	case "isset":
		if r.OK != (s.n > s.waiting()) && !r.Open {
			return nil
		}
	case opBegins:
		s.begun |= 1 << c.Arg
		return []tokens{s, {s.n, s.begun, s.waits | 1<<c.Arg}}
	case "wait":
		begun := s.begun>>c.Arg&1 != 0
		if s.begun &^= 1 << c.Arg; !begun {
			return nil
		}
		switch {
		case !r.OK && !r.Open && waiting && s.n > 0:
			return nil // a wait that gives up still takes a token if there is one
		case !r.OK && !r.Open && waiting:
			return []tokens{s.ended(c.Arg, 0)}
		case !r.OK && !r.Open:
			return []tokens{s}
		case waiting && s.n > 0:
			return []tokens{s.ended(c.Arg, s.n-1)}
		case !waiting && s.n > s.waiting():
			return []tokens{{s.waiting(), s.begun, s.waits}}
		}
		return nil
	case opDies:
		for g := range goroutines {
			s.waits &^= 1 << (int(c.Proc)*goroutines + g)
		}
	}
	return []tokens{s}
}

// stepsOfWait splits a wait for an auto-reset Event into its two steps.
func stepsOfWait(o porcupine.Operation) []porcupine.Operation {
	c := o.Input.(call)
	if c.Op != "wait" {
		return []porcupine.Operation{o}
	}
	c.Arg = uint64(o.ClientId)
	o.Input = c
	begins := o
	c.Op = opBegins
	begins.Input = c
	return []porcupine.Operation{begins, o}
}

func addEvents() {
	open := func(mode prims.EventMode) func(*arena.Arena) (client, error) {
		return func(a *arena.Arena) (client, error) {
			e, err := prims.OpenEvent(a, "e", &prims.EventOptions{Mode: mode})
			if err != nil {
				return nil, err
			}
			return func(r *rand.Rand, log func(string, uint64, func() result)) {
				pick(r,
					func() { log("set", 0, func() result { e.Set(); return ok }) },
					func() { log("set", 0, func() result { e.Set(); return ok }) },
					func() { log("reset", 0, func() result { e.Reset(); return ok }) },
					func() { log("isset", 0, func() result { return result{OK: e.IsSet()} }) },
					func() { log("wait", 0, func() result { return briefly(r, e.WaitContext) }) },
					func() { log("wait", 0, func() result { return briefly(r, e.WaitContext) }) })
			}, nil
		}
	}
	wrong := func() []porcupine.Operation {
		return bad(call{Proc: 0, Op: "set", Arg: 0}, ok, call{Proc: 1, Op: "wait", Arg: 0}, ok, call{Proc: 1, Op: "reset", Arg: 0}, ok, call{Proc: 1, Op: "wait", Arg: 0}, ok)
	}
	subjects["event"] = subject{name: "event", model: model(false, stepEvent), open: open(prims.EventManualReset), bad: wrong()}
	subjects["auto event"] = subject{
		name: "auto event", model: model(tokens{}, stepAutoEvent), steps: stepsOfWait, open: open(prims.EventAutoReset), bad: wrong(),
	}
}

// items is the state of a Queue: the items in order. Each value is used once.
type items struct {
	n  int
	at [room]uint64
	// owed has, for each process, the items that its unfinished calls have taken. If the process dies, these
	// items may come back in front of all others.
	owed [3][2]uint64
}

const room = 3

func (s items) put(v uint64) items { s.at[s.n] = v; s.n++; return s }

func (s items) get() items {
	copy(s.at[:], s.at[1:s.n])
	s.n--
	s.at[s.n] = 0
	return s
}

func (s items) back(v uint64) items {
	copy(s.at[1:], s.at[:s.n])
	s.at[0] = v
	s.n++
	return s
}

func addQueue() {
	var next atomic.Uint64
	subjects["queue"] = subject{
		name: "queue",
		model: model(items{}, func(s items, c call, r result) []items {
			switch c.Op {
			case "put":
				if r.Err == ended {
					return []items{s}
				}
				if !r.OK && !r.Open {
					// A TryPut fails if the queue is full. While another call runs, it may fail earlier: a Put may
					// be waiting, or a waiter may still have to copy its item.
					if c.Beside || s.n == room {
						return []items{s}
					}
					return nil
				}
				if s.n == room {
					return nil
				}
				return []items{s.put(c.Arg)}
			case "get":
				if r.Err == ended {
					return []items{s}
				}
				if !r.OK && !r.Open {
					if c.Beside || s.n == 0 {
						return []items{s}
					}
					return nil
				}
				if s.n == 0 || !r.Open && s.at[0] != r.Out {
					return nil
				}
				v := s.at[0]
				s = s.get()
				if r.Open {
					o := &s.owed[c.Proc]
					if o[0] == 0 {
						o[0] = v
					} else {
						o[1] = v
					}
				}
				return []items{s}
			case opDies:
				o := s.owed[c.Proc]
				s.owed[c.Proc] = [2]uint64{}
				states := []items{s}
				for i := len(o) - 1; i >= 0; i-- { // the item that was taken later comes first
					if o[i] == 0 {
						continue
					}
					for _, st := range states {
						if st.n < room {
							states = append(states, st.back(o[i]))
						}
					}
				}
				return states
			}
			return nil
		}),
		open: func(a *arena.Arena) (client, error) {
			q, err := prims.OpenQueue[uint64](a, "q", room, nil)
			if err != nil {
				return nil, err
			}
			self := uint64(a.Self()) << 16
			return func(r *rand.Rand, log func(string, uint64, func() result)) {
				v := self | next.Add(1)
				put := func(f func() result) { log("put", v, f) }
				get := func(f func() (uint64, result)) {
					log("get", 0, func() result { out, res := f(); res.Out = out; return res })
				}
				pick(r,
					func() { put(func() result { return result{OK: q.TryPut(v)} }) },
					func() {
						put(func() result {
							return briefly(r, func(ctx context.Context) error { return q.PutContext(ctx, v) })
						})
					},
					func() { get(func() (uint64, result) { v, took := q.TryGet(); return v, result{OK: took} }) },
					func() {
						get(func() (out uint64, res result) {
							res = briefly(r, func(ctx context.Context) (err error) { out, err = q.GetContext(ctx); return err })
							return out, res
						})
					})
			}, nil
		},
		bad: bad(call{Proc: 0, Op: "put", Arg: 5}, ok, call{Proc: 0, Op: "put", Arg: 6}, ok, call{Proc: 1, Op: "get", Arg: 0}, result{OK: true, Out: 6}),
	}
}
