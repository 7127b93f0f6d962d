//go:build linux

package arenakernel

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// testLock is a lock that never waits, for tests that examine what a reap does to an object. Besides
// the owner word it has two counts: how often the lock was taken back from a dead participant, and how
// often its waiters were woken.
type testLock struct {
	arena *Arena
	owner *atomic.Uint32 // a ParticipantID, or 0
	taken *atomic.Uint32 // number of holds taken back from dead participants
	woken *atomic.Uint32
}

var testLockKind = KindOf("TLOK")

func init() {
	RegisterKind(KindOps{
		Kind: testLockKind,
		Repair: func(a *Arena, o Object, dead ParticipantID) bool {
			l := testLockOf(a, o)
			if n := ParticipantID(l.owner.Load()); a.Reaps(dead, n) && TakeFromDead(a, n, l.owner, uint32(n), 0) {
				l.taken.Add(1)
			}
			return true
		},
		Wake: func(a *Arena, o Object, _ Owed) { testLockOf(a, o).woken.Add(1) },
	})
}

func testLockOf(a *Arena, o Object) *testLock {
	return &testLock{a, a.u32(o.Body), a.u32(o.Body + 4), a.u32(o.Body + 8)}
}

func openTestLock(a *Arena, name string) (*testLock, error) {
	o, _, err := a.OpenObject(ObjectSpec{Kind: testLockKind, Name: name, Size: 64})
	if err != nil {
		return nil, err
	}
	return testLockOf(a, o), nil
}

// tryLock takes the lock if it is free.
func (l *testLock) tryLock() bool { return l.owner.CompareAndSwap(0, uint32(l.arena.self)) }

// useArena does one operation of each sort that a healthy participant can do, and leaves nothing
// behind. The parameter called name is the prefix of the names of its objects.
func useArena(a *Arena, name string) error {
	for _, size := range []uint64{64, 100, 5000, 20000, 3 * chunkSize} {
		off, err := a.Alloc(size, 0)
		if err != nil {
			return err
		}
		a.Free(off)
	}
	for _, n := range []string{name, "shared by all"} {
		o, _, err := a.OpenObject(ObjectSpec{Kind: testKind, Name: n, Size: 200})
		if err != nil {
			return err
		}
		node, err := a.PollerNode(o, a.u64(o.Body), anyNode)
		if err != nil {
			return err
		}
		a.ReleasePollerNode(node)
		a.CloseObject(o)
	}
	// The death watcher of this process may have the object open for a reap and may have lost the CPU
	// meanwhile, so try again while the object is busy.
	err := a.Delete(name)
	for end := time.Now().Add(bound()); errors.Is(err, syscall.EBUSY) && time.Now().Before(end); {
		runtime.Gosched()
		err = a.Delete(name)
	}
	if err != nil {
		return fmt.Errorf("delete %q: %w", name, err)
	}
	if err := a.Delete("shared by all"); err != nil && !isAny(err, fs.ErrNotExist, syscall.EBUSY) {
		return err
	}
	node, err := a.ClaimNode()
	if err != nil {
		return err
	}
	if err := a.freeNode(node); err != nil {
		return err
	}
	if !a.Current(a.self) || a.Dead(a.self) {
		return fmt.Errorf("%v takes itself for dead", a.self)
	}
	for p := range a.Participants() {
		if p.Self {
			return nil
		}
	}
	return fmt.Errorf("%v is not among the participants", a.self)
}

func init() {
	// "clean" removes everything from the arena.
	agentOrders["clean"] = func(s *agent, o order, a *answer) error { return clean(s.arena) }
}

// clean deletes all objects and frees all blocks.
func clean(a *Arena) error {
	var all []Object
	for o := range a.Objects() {
		all = append(all, o)
	}
	for _, o := range all {
		for err := error(nil); ; a.CloseObject(o) { // this process may have the object open several times
			if err = a.DeleteObject(o); !errors.Is(err, syscall.EBUSY) {
				break
			}
		}
	}
	var wordPtr []Offset
	a.eachBlock(func(off Offset, _ uint64, w blockWord) bool {
		if w.kind() == blockRaw {
			wordPtr = append(wordPtr, off)
		}
		return true
	})
	for _, off := range wordPtr {
		a.Free(off)
	}
	return a.Check()
}
