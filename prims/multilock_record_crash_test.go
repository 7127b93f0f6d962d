//go:build linux && crashpoint

package prims_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/prims"
)

// multiScene is a MultiLock that this process and another process use while a third process, the
// victim, is stopped or dies.
type multiScene struct {
	t    *testing.T
	a    *arena.Arena
	x    *prims.MultiLock
	y    *actor // the other process
	key  uint64 // the key that the victim locks
	keys []uint64
	next int // the index of the first of keys that is not used yet
}

// multiPlaces are the places that a key can have: an entry of its bucket, or an entry of a block.
var multiPlaces = map[string]int{"in the bucket": 0, "in a block": 3}

// newMultiScene makes a MultiLock. This process holds as many keys of one bucket as the parameter held
// says. The key of the scene is in the same bucket, and is free. If entry is true, that key has an entry.
func newMultiScene(t *testing.T, held int, entry bool) *multiScene {
	s := &multiScene{t: t, a: newArena(t, nil)}
	s.x = openMulti(t, s.a, nil)
	s.keys = sameBucketWide(s.x, 100)
	for _, key := range s.keys[:held] {
		s.x.Lock(key)
	}
	s.key, s.next = s.keys[held], held+1
	if entry {
		s.x.Lock(s.key).Unlock()
		require.Equal(t, held >= 3, s.x.Entries(s.key) > 3)
	}
	s.y = lockActor(t, s.a, "other")
	s.y.must(t, order{Op: "mopen", Object: "m"})
	return s
}

// sameBucketWide returns n keys of the same bucket. Both halves of each key differ from those of the
// other keys, so a record that gives a key an entry changes three words.
func sameBucketWide(x *prims.MultiLock, n int) (keys []uint64) {
	for i := uint64(1); len(keys) < n; i++ {
		if key := i<<32 | i + 7; x.SameBucket(0, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// victim starts a process that stops, or dies, when it passes a crash point.
func (s *multiScene) victim(variable, point string) *actor {
	s.t.Helper()
	return fairVictim(s.t, s.a, variable, point)
}

func (s *multiScene) order(op string) order { return order{Op: op, Object: "m", Token: s.key} }

// granted makes the process v the holder of the key by a grant. A grant needs a record, so the hold
// word is closed.
func (s *multiScene) granted(v *actor) {
	s.t.Helper()
	h := s.x.Lock(s.key)
	id := multiQueued(s.t, s.x, v, s.key, s.order("mlock"))
	h.Unlock()
	require.Empty(s.t, v.wait(s.t, id).Panic)
}

// othersGoOn locks and unlocks other keys of the bucket and of other buckets, in two processes. Some of the keys had
// no entry before. None of these calls may wait.
func (s *multiScene) othersGoOn() {
	s.t.Helper()
	keys := []uint64{s.keys[s.next], s.keys[s.next+1], s.keys[s.next], s.keys[50], 1, 2, 3, uint64(s.next) << 40}
	s.next += 2
	for _, key := range keys {
		got := s.y.do(s.t, order{Op: "mlockctx", Object: "m", Token: key, Done: true})
		require.Empty(s.t, got.Err, "key %#x", key)
		_, ok := s.x.TryLock(key)
		require.False(s.t, ok)
		s.y.must(s.t, order{Op: "munlock", Object: "m", Token: key})
		h, ok := s.x.TryLock(key)
		require.True(s.t, ok, "key %#x: %v", key, s.x.State(key))
		h.Unlock()
	}
}

// held reports whether the victim visibly has the key.
func (s *multiScene) held() bool {
	st := s.x.State(s.key)
	return st.Held && st.Owner != nil && st.Owner.Label == "victim"
}

// try locks the key and unlocks it again, if that is possible without waiting.
func (s *multiScene) try() bool {
	h, ok := s.x.TryLock(s.key)
	if ok {
		h.Unlock()
	}
	return ok
}

// ends checks that all keys can be locked, and that nothing is left over.
func (s *multiScene) ends() {
	s.t.Helper()
	s.y.must(s.t, s.order("mlock"))
	s.y.must(s.t, s.order("munlock"))
	require.True(s.t, s.try(), "%v", s.x.State(s.key))
	s.othersGoOn()
	require.NoError(s.t, s.x.Close())
	s.y.proc.Kill(s.t)
	alone(s.t, s.a, 1)
	require.Zero(s.t, s.a.Stats().Claimed)
	sound(s.t, s.a)
}

// eachPlace runs a test for each place that a key can have.
func eachPlace(t *testing.T, f func(t *testing.T, held int)) {
	for place, held := range multiPlaces {
		t.Run(place, func(t *testing.T) { f(t, held) })
	}
}

// TestMultiLockTryLockSeesACommittedUnlock: a process commits the record of an Unlock and is stopped
// before it carries the record out. The Unlock has still taken effect: TryLock of another process
// carries the record out and gets the key.
func TestMultiLockTryLockSeesACommittedUnlock(t *testing.T) {
	eachPlace(t, func(t *testing.T, held int) {
		s := newMultiScene(t, held, true)
		v := s.victim("SHMSYNC_CRASHPOINT_STOP", "record.commit.named:2") // the first record queues the wait
		s.granted(v)
		require.False(t, s.try())
		id := v.start(s.order("munlock"))
		v.proc.AwaitStop(t)
		h, ok := s.x.TryLock(s.key)
		require.True(t, ok, "%v", s.x.State(s.key))
		v.proc.Cont(t)
		require.Empty(t, v.wait(t, id).Panic)
		require.False(t, s.try(), "the process that goes on changes nothing")
		h.Unlock()
		v.proc.Kill(t)
		s.ends()
	})
}

// TestMultiLockDiesAccepting: a waiter that dies before it accepts the key has never held it. A
// waiter that dies after that counts as a holder that died.
func TestMultiLockDiesAccepting(t *testing.T) {
	for point, accepted := range map[string]bool{"record.await.resolved": false, "multilock.lock.accepted": true} {
		t.Run(point, func(t *testing.T) {
			eachPlace(t, func(t *testing.T, held int) {
				s := newMultiScene(t, held, true)
				for range 2 { // in the second round the accepted word names an earlier participant of the same slot
					v := s.victim("SHMSYNC_CRASHPOINT", point)
					h := s.x.Lock(s.key)
					multiQueued(t, s.x, v, s.key, s.order("mlock"))
					p := s.lockAsync()
					h.Unlock()
					v.proc.WaitSignal(t, syscall.SIGKILL)
					<-p.done
					s.lost(p, accepted)
					alone(t, s.a, 2)
				}
				s.ends()
			})
		})
	}
}

// multiWait is a LockContext of a goroutine of this process.
type multiWait struct {
	done chan struct{} // closed when the call has returned
	h    prims.Hold
	err  error
}

// lockAsync begins to wait for the key, and returns when the wait is queued or over.
func (s *multiScene) lockAsync() *multiWait {
	s.t.Helper()
	p := &multiWait{done: make(chan struct{})}
	n := s.x.Queued(s.key)
	go func() {
		defer close(p.done)
		p.h, p.err = s.x.LockContext(s.t.Context(), s.key)
	}()
	eventually(s.t, "the wait is queued", s.x.String, func() bool { return p.over() || s.x.Queued(s.key) == n+1 })
	return p
}

func (p *multiWait) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// lost checks the result of the wait p, during which the victim died. If the victim held the key, died is
// true, and lost also recovers the key.
func (s *multiScene) lost(p *multiWait, died bool) {
	s.t.Helper()
	if !died {
		require.NoError(s.t, p.err)
		p.h.Unlock()
		return
	}
	require.ErrorIs(s.t, p.err, shmsync.ErrOwnerDead)
	require.ErrorContains(s.t, p.err, "victim")
	require.NoError(s.t, s.x.Recover(s.key, func() error { return nil }))
}

// TestMultiLockSecondGrantToTheSameParticipant: a participant is granted the key twice in a row,
// accepts the first grant, and dies before it accepts the second. The accepted word of the first
// grant must not count for the second.
func TestMultiLockSecondGrantToTheSameParticipant(t *testing.T) {
	eachPlace(t, func(t *testing.T, held int) {
		s := newMultiScene(t, held, true)
		v := s.victim("SHMSYNC_CRASHPOINT", "record.await.resolved:2")
		h := s.x.Lock(s.key)
		first := multiQueued(t, s.x, v, s.key, s.order("mlock"))
		multiQueued(t, s.x, v, s.key, s.order("mlock"))
		h.Unlock()
		require.Empty(t, v.wait(t, first).Panic)
		v.start(s.order("munlock"))
		v.proc.WaitSignal(t, syscall.SIGKILL)
		h, err := s.x.LockContext(t.Context(), s.key)
		require.NoError(t, err)
		h.Unlock()
		s.ends()
	})
}

// TestMultiLockStoppedAtEachPoint stops a process at each crash point of a call that waits for a key,
// and of the Unlock after it. While the process is stopped, it either visibly has the key, or others
// get it, and no call for another key waits. When the process is killed, the key goes to others. When
// it goes on instead, its call ends as if it had not been stopped. Nobody helps the victim to queue its wait; see
// TestFairMutexStoppedAtEachPoint.
func TestMultiLockStoppedAtEachPoint(t *testing.T) {
	for point, times := range map[string]int{
		"record.wait.prepared": 1, "record.commit.written": 2, "record.commit.named": 2, "record.complete.begun": 7, "record.commit.completed": 2,
		"record.await.resolved": 1, "multilock.lock.accepted": 1, "multilock.unlock.committed": 1, "record.tell.resolved": 1,
		"record.wake.before": 1,
	} {
		for n := 1; n <= times; n++ {
			what := fmt.Sprintf("%s:%d", point, n)
			t.Run(what, func(t *testing.T) {
				eachPlace(t, func(t *testing.T, held int) {
					multiStoppedAt(t, held, what, true)
					multiStoppedAt(t, held, what, false)
				})
			})
		}
	}
}

func multiStoppedAt(t *testing.T, held int, what string, kill bool) {
	s := newMultiScene(t, held, true)
	v := s.victim("SHMSYNC_CRASHPOINT_STOP", what)
	h := s.x.Lock(s.key)
	o := s.order("mspin")
	o.N = 1
	id := v.start(o)
	victim := idOf(s.a, "victim")
	eventually(t, "the victim waits or is stopped", v.dump, func() bool { return isStopped(v.proc) || s.x.CarriedOut(s.key, victim) })
	p := s.lockAsync()
	s.othersGoOn()
	h.Unlock()
	v.proc.AwaitStop(t)
	s.othersGoOn()
	eventually(t, "the victim has the key, or the wait ends", v.dump, func() bool { return s.held() || p.over() })
	over := p.over()
	o = s.order("mlockctx")
	o.Limit = 50 * time.Millisecond
	require.Contains(t, s.y.do(t, o).Is, "ctx-deadline")
	require.False(t, s.try())
	s.othersGoOn()
	if kill {
		v.proc.Kill(t)
		<-p.done
		require.False(t, over && p.err != nil)
		s.lost(p, p.err != nil)
		s.ends()
		return
	}
	if v.proc.Cont(t); over {
		require.NoError(t, p.err)
		p.h.Unlock()
	}
	require.Empty(t, v.wait(t, id).Panic)
	<-p.done
	if require.NoError(t, p.err); !over {
		p.h.Unlock()
	}
	v.proc.Kill(t)
	alone(t, s.a, 2)
	s.ends()
}

// TestMultiLockStoppedWithAFreshKey stops a process at each crash point of the Lock and the Unlock of
// a key that had no entry. While the process is stopped, other processes lock other keys of the same
// bucket, which get entries. The process is then killed, or goes on.
func TestMultiLockStoppedWithAFreshKey(t *testing.T) {
	for what, held := range map[string]bool{
		"record.commit.written": false, "record.commit.named": true, "record.complete.begun:1": true, "record.complete.begun:2": true,
		"record.complete.begun:3": true, "record.commit.completed": true, "multilock.lock.taken": true, "multilock.unlock.freed": false,
		// In a full bucket, the Lock adds a block. It passes the first three points for the second time: the open of
		// the MultiLock has passed them when it added a slot record.
		"arena.slotrecord.claimed:2": false, "arena.slotrecord.before_push:2": false, "arena.slotrecord.pushed:2": false,
		"multilock.block.pushed": false,
	} {
		t.Run(what, func(t *testing.T) {
			if what == "multilock.unlock.freed" {
				needsOpen(t)
			}
			block := strings.Contains(what, "arena.") || strings.Contains(what, "block")
			for full, n := range map[string]int{"a bucket with room": 0, "a full bucket": 3} {
				if block && n == 0 {
					continue
				}
				t.Run(full, func(t *testing.T) {
					multiStoppedFresh(t, n, what, held, true)
					multiStoppedFresh(t, n, what, held, false)
				})
			}
		})
	}
}

func multiStoppedFresh(t *testing.T, full int, what string, held, kill bool) {
	s := newMultiScene(t, full, false)
	v := s.victim("SHMSYNC_CRASHPOINT_STOP", what)
	v.must(t, order{Op: "mopen", Object: "m"})
	o := s.order("mspin")
	o.N = 1
	id := v.start(o)
	v.proc.AwaitStop(t)
	s.othersGoOn()
	require.Equal(t, held, s.held(), "%+v", s.x.State(s.key))
	require.Equal(t, !held, s.try())
	s.y.must(t, order{Op: "mall", Object: "m", Token: 5 << 50, N: 200}) // adds blocks to many buckets
	s.othersGoOn()
	s.y.must(t, order{Op: "munlock", Object: "m", Token: 5 << 50})
	if !kill {
		v.proc.Cont(t)
		require.Empty(t, v.wait(t, id).Panic)
		require.True(t, s.try())
		v.proc.Kill(t)
		alone(t, s.a, 2)
		s.ends()
		return
	}
	v.proc.Kill(t)
	h, err := s.x.LockContext(t.Context(), s.key)
	s.lost(&multiWait{h: h, err: err}, held)
	alone(t, s.a, 2)
	s.ends()
}

// TestMultiLockDiesWithAFreshKeyBesideStrangers: a process locks a key that has no entry, and dies after it has
// committed the change. The new entry of the key may not show the hold yet. The processes that reap the dead process
// have not opened the MultiLock, and still take the key back.
func TestMultiLockDiesWithAFreshKeyBesideStrangers(t *testing.T) {
	for _, point := range []string{"record.commit.named", "record.complete.begun:1", "record.complete.begun:2", "multilock.lock.taken"} {
		t.Run(point, func(t *testing.T) {
			a := newArena(t, nil)
			lockActor(t, a, "another stranger")
			v := fairVictim(t, a, "SHMSYNC_CRASHPOINT", point)
			v.start(order{Op: "mlock", Object: "m", Token: 5<<32 | 6})
			v.proc.WaitSignal(t, syscall.SIGKILL)
			alone(t, a, 2)
			require.Equal(t, "0 keys held, 1 that nobody can have", a.Inspect(arena.Object(multiObject(t, a))).State)
			x, err := prims.AttachMultiLock(a, "m", nil)
			require.NoError(t, err)
			require.ErrorIs(t, x.State(5<<32|6).Err, shmsync.ErrOwnerDead)
			require.NoError(t, x.Recover(5<<32|6, func() error { return nil }))
			x.Lock(5<<32 | 6).Unlock()
			sound(t, a)
		})
	}
}

// TestMultiLockStoppedInAFastPath: a process is stopped or dies when it locks or unlocks a key by CAS.
// While it is stopped, either it visibly has the key, or it has unlocked the key.
func TestMultiLockStoppedInAFastPath(t *testing.T) {
	needsOpen(t)
	for point, held := range map[string]bool{"multilock.lock.taken": true, "multilock.unlock.freed": false} {
		t.Run(point, func(t *testing.T) {
			eachPlace(t, func(t *testing.T, n int) {
				s := newMultiScene(t, n, true)
				v := s.victim("SHMSYNC_CRASHPOINT_STOP", point)
				o := s.order("mspin")
				o.N = 1
				v.start(o)
				v.proc.AwaitStop(t)
				require.Equal(t, held, s.held())
				require.Contains(t, s.x.HoldWord(s.key), ", open")
				require.Equal(t, !held, s.try())
				s.othersGoOn()
				v.proc.Kill(t)
				h, err := s.x.LockContext(t.Context(), s.key)
				s.lost(&multiWait{h: h, err: err}, held)
				alone(t, s.a, 2)
				s.ends()
			})
		})
	}
}

// TestMultiLockStoppedInARecovery: a process that recovers a key is stopped, and then dies. While it
// is stopped, it visibly has the key. After its death the key is owner-dead again.
func TestMultiLockStoppedInARecovery(t *testing.T) {
	for _, point := range []string{"multilock.recover.taken", "multilock.recover.repaired"} {
		t.Run(point, func(t *testing.T) {
			eachPlace(t, func(t *testing.T, n int) {
				s := newMultiScene(t, n, true)
				dies := lockActor(t, s.a, "dies")
				dies.must(t, s.order("mlock"))
				v := s.victim("SHMSYNC_CRASHPOINT_STOP", point)
				dies.proc.Kill(t)
				_, err := s.x.LockContext(context.Background(), s.key)
				require.ErrorIs(t, err, shmsync.ErrOwnerDead)
				v.start(s.order("mrecover"))
				v.proc.AwaitStop(t)
				require.True(t, s.held())
				require.False(t, s.try())
				p := s.lockAsync()
				s.othersGoOn()
				v.proc.Kill(t)
				<-p.done
				s.lost(p, true)
				s.ends()
			})
		})
	}
}

// TestMultiLockOneBlock: two processes find at the same time that a bucket has no room. Only one of them adds a block.
func TestMultiLockOneBlock(t *testing.T) {
	for _, point := range []string{"arena.slotrecord.claimed", "arena.slotrecord.before_push"} {
		t.Run(point, func(t *testing.T) {
			s := newMultiScene(t, 3, false)
			crashpoint.ArmFunc(point, 1, func() { s.y.must(t, order{Op: "mlock", Object: "m", Token: s.keys[50]}) })
			defer crashpoint.Disarm()
			s.x.Lock(s.key)
			require.Equal(t, 3+4, s.x.Entries(s.key))
			require.True(t, s.x.State(s.key).Held)
			require.True(t, s.x.State(s.keys[50]).Held)
		})
	}
}
