//go:build linux

package cinterop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// This file is the Go side of testdata/agent_multi.h.

func init() {
	verbs["multi"] = (*goAgent).multi
	groupTurns["group.multi"] = (*goAgent).groupMulti
}

func (x *goAgent) keepHolds(h ...prims.Hold) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.holds = append(x.holds, h...)
}

// holdOf returns the last hold of a key, or an empty Hold if there is none.
func (x *goAgent) holdOf(key uint64) prims.Hold {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, h := range slices.Backward(x.holds) {
		if h.Key() == key {
			x.holds = slices.Delete(x.holds, i, i+1)
			x.stale = h
			return h
		}
	}
	return prims.Hold{}
}

func (x *goAgent) multi(o order) (n uint64, err error) {
	var opts prims.MultiLockOptions
	if o.verb == "multi.open" {
		opts.Policy, opts.Buckets = prims.Policy(o.arg(0)), int(o.arg(1))
	}
	m, err := prims.OpenMultiLock(x.a, o.name, &opts)
	if err != nil {
		return 0, err
	}
	var h prims.Hold
	key := uint64(o.arg(0))
	switch o.verb {
	case "multi.open":
		return uint64(m.Offset()), nil
	case "multi.unlock":
		x.holdOf(key).Unlock()
		return 0, nil
	case "multi.staleunlock":
		x.stale.Unlock()
		return 0, nil
	case "multi.hang":
		return 0, m.Recover(key, x.hangs)
	case "multi.recover":
		err = m.Recover(key, func() error {
			n++
			return nil
		})
		return n, err
	case "multi.spoil":
		return 0, m.Recover(key, func() error { return errors.New("spoilt") })
	case "multi.lockall":
		var keys []uint64
		for i := range uint64(o.arg(1)) {
			keys = append(keys, key+i)
		}
		slices.Reverse(keys)
		all, err := m.LockAllContext(o.ctx(2), append(keys, keys[0])...)
		x.keepHolds(all...)
		return uint64(len(all)), err
	case "multi.unlockall":
		x.mu.Lock()
		defer x.mu.Unlock()
		x.holds.Unlock()
		x.holds = nil
		return 0, nil
	case "multi.try":
		var ok bool
		h, ok = m.TryLock(key)
		err = tried(ok, m.State(key).Err)
	case "multi.lock":
		h, err = m.LockContext(o.ctx(1), key)
	default:
		return 0, syscall.ENOSYS
	}
	if err == nil {
		x.keepHolds(h)
	}
	return 0, err
}

func (x *goAgent) groupKey(ctx context.Context, m *prims.MultiLock, name string, key uint64) error {
	h, err := m.LockContext(ctx, key)
	if err == nil {
		err = x.alone(fmt.Sprintf("%s-%d", name, key))
	}
	if err == nil {
		h.Unlock()
	}
	return err
}

func (x *goAgent) groupMulti(name string, turn int) error {
	m, err := prims.OpenMultiLock(x.a, name, nil)
	if err != nil {
		return err
	}
	defer m.Close()
	key := uint64(turn % 3)
	switch turn % 4 {
	case 0:
		var keys []uint64
		for i := range uint64(6) {
			keys = append(keys, uint64(turn%5)+i)
		}
		var all prims.Holds
		if all, err = m.LockAllContext(context.Background(), keys...); err == nil {
			all.Unlock()
		}
	case 1:
		ctx, cancel := inMs(1)
		defer cancel()
		err = x.groupKey(ctx, m, name, key)
	default:
		for tries := 0; tries < 4 && err == nil; tries++ {
			err = x.groupKey(context.Background(), m, name, key)
		}
		if err == nil {
			if h, ok := m.TryLock(key); ok {
				h.Unlock()
			}
		}
	}
	if errors.Is(err, shmsync.ErrOwnerDead) {
		err = nil
		for key := uint64(0); key < 10 && err == nil; key++ {
			err = m.Recover(key, func() error { return nil })
		}
	}
	return but(err, context.DeadlineExceeded)
}

// multiWords reads a MultiLock. It reports whether all keys are free, and returns as text the words of the keys that
// are not free.
func multiWords(t *testing.T, arenaName, name string) (free bool, words string) {
	t.Helper()
	a, err := arena.Attach(arenaName, &arena.Options{Label: "describer"})
	require.NoError(t, err)
	defer a.Close()
	m, err := prims.OpenMultiLock(a, name, nil)
	require.NoError(t, err)
	defer m.Close()
	for o := range a.Objects() {
		if o.Offset == m.Offset() {
			words = (*arenakernel.Arena)(a).Describe(arenakernel.Object(o))
		}
	}
	return m.String() == fmt.Sprintf("multilock %s: 0 keys are not free, of 1 buckets", name), words
}

// allKeysFree recovers the keys of dead processes, and checks that no key is held and no node of a key is left.
func allKeysFree(t *testing.T, x *agent) {
	t.Helper()
	for key := range 10 {
		x.do(t, "multi.recover", "x", key)
		x.do(t, "multi.try", "x", key)
		x.do(t, "multi.unlock", "x", key)
	}
	free, words := multiWords(t, x.arena, "x")
	require.True(t, free, words)
}

func TestMultiLockPlain(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "multi.open", "m", 1, 1)
		s.b.start(t, "multi.open", "m", release).fails(t, syscall.EINVAL)
		s.b.start(t, "multi.open", "m", 0, 2).fails(t, syscall.EINVAL)
		s.a.do(t, "multi.lock", "m", 7)
		s.b.start(t, "multi.try", "m", 7).fails(t, syscall.EBUSY)
		s.b.start(t, "multi.lock", "m", 7, 20).fails(t, syscall.ETIMEDOUT)
		s.b.start(t, "multi.unlock", "m", 7).fails(t, syscall.EPERM)
		s.b.do(t, "multi.lock", "m", 8, 0)
		w := s.b.blocked(t, off, 1, "multi.lock", "m", 7)
		x := s.c.blocked(t, off, 2, "multi.lock", "m", 7)
		y := s.c.blocked(t, off, 3, "multi.lock", "m", 8)
		s.a.do(t, "multi.unlock", "m", 7)
		w.must(t)
		s.a.start(t, "multi.staleunlock", "m").fails(t, syscall.EPERM)
		s.a.start(t, "multi.try", "m", 7).fails(t, syscall.EBUSY)
		s.b.do(t, "multi.unlock", "m", 8)
		y.must(t)
		s.b.do(t, "multi.unlock", "m", 7)
		x.must(t)
		s.c.do(t, "multi.unlock", "m", 7)
		s.a.do(t, "multi.try", "m", 7)
		s.c.do(t, "multi.unlock", "m", 8)
		s.a.do(t, "multi.unlock", "m", 7)
		if free, words := multiWords(t, s.arena, "m"); !free {
			t.Fatal(words)
		}
	})
}

// One agent holds more keys of a bucket than the bucket has entries, and the other agent gets them later.
func TestMultiLockBlocks(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "multi.open", "m", 1, 1)
		require.EqualValues(t, 20, s.a.do(t, "multi.lockall", "m", 0, 20))
		var all []pending
		for key := range 20 {
			s.b.start(t, "multi.try", "m", key).fails(t, syscall.EBUSY)
			all = append(all, s.c.blocked(t, off, uint64(key+1), "multi.lock", "m", key))
		}
		s.b.do(t, "multi.lock", "m", 20)
		s.b.start(t, "multi.lockall", "m", 18, 3, 20).fails(t, syscall.ETIMEDOUT)
		s.a.do(t, "multi.unlockall", "m")
		for _, p := range all {
			p.must(t)
		}
		w := s.a.blocked(t, off, 1, "multi.lockall", "m", 0, 20)
		s.c.do(t, "multi.unlockall", "m")
		require.EqualValues(t, 20, w.must(t))
		s.a.do(t, "multi.unlockall", "m")
		s.b.do(t, "multi.unlock", "m", 20)
		if free, words := multiWords(t, s.arena, "m"); !free {
			t.Fatal(words)
		}
	})
}

// keyState returns the kind of the owner word of a key, and the ID of the participant that the word names. The
// MultiLock has one bucket. ok is false if the bucket itself, without its blocks, has no entry for the key.
func keyState(t *testing.T, arenaName string, off, key uint64) (kind, name uint32, ok bool) {
	t.Helper()
	image, _ := body(t, arenaName, off)
	for i := range 3 {
		entry := image[128+16+64*i:]
		if low, high := binary.LittleEndian.Uint32(entry[4:]), binary.LittleEndian.Uint32(entry[12:]); uint64(high)<<32|uint64(low) == key {
			v := binary.LittleEndian.Uint32(entry[20:])
			return v >> 29, v & (1<<29 - 1), true
		}
	}
	return 0, 0, false
}

// multiOpen is the kind of an owner word that is open.
const multiOpen = 1

// isOpen requires that the owner word of a key is open if the parameter open is true, and closed otherwise. It also
// requires that a participant holds the key if the parameter held is true, and that the key is free otherwise.
func (s scene) isOpen(t *testing.T, off, key uint64, open, held bool) {
	t.Helper()
	kind, name, ok := keyState(t, s.arena, off, key)
	require.True(t, ok, "key %d has no entry", key)
	require.Equal(t, []bool{open, held}, []bool{kind == multiOpen, name != 0})
}

// While no process waits for a key, the owner word of the key stays open, even if calls fail to lock the key. A wait
// closes the word. The Unlock after the last wait opens the word again.
func TestMultiLockOpen(t *testing.T) {
	if race.Enabled {
		t.Skip("needs a build without the race detector, with which a process in Go opens no word")
	}
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "multi.open", "m", 1, 1)
		for i := range 2 { // the first lock of a key makes a record
			s.a.do(t, "multi.lock", "m", 7)
			s.isOpen(t, off, 7, true, true)
			if i > 0 { // an unlock of the first hold fails, although the same process has the key again
				s.a.start(t, "multi.staleunlock", "m").fails(t, syscall.EPERM)
				s.isOpen(t, off, 7, true, true)
			}
			s.b.start(t, "multi.try", "m", 7).fails(t, syscall.EBUSY)
			s.isOpen(t, off, 7, true, true)
			s.a.do(t, "multi.unlock", "m", 7)
			s.isOpen(t, off, 7, true, false)
			s.a.start(t, "multi.staleunlock", "m").fails(t, syscall.EPERM)
		}
		s.b.do(t, "multi.lock", "m", 7) // without a record, although another process had the key last
		s.isOpen(t, off, 7, true, true)
		s.a.start(t, "multi.staleunlock", "m").fails(t, syscall.EPERM)
		w := s.a.blocked(t, off, 1, "multi.lock", "m", 7)
		s.isOpen(t, off, 7, false, true)
		s.b.do(t, "multi.unlock", "m", 7)
		w.must(t)
		s.isOpen(t, off, 7, false, true)
		s.b.start(t, "multi.staleunlock", "m").fails(t, syscall.EPERM)
		s.b.start(t, "multi.lock", "m", 7, 20).fails(t, syscall.ETIMEDOUT)
		s.isOpen(t, off, 7, false, true) // still closed, because a record that opens the word changes the tag of the hold
		s.a.do(t, "multi.unlock", "m", 7)
		s.isOpen(t, off, 7, true, false)
		s.a.start(t, "multi.staleunlock", "m").fails(t, syscall.EPERM)

		// Other keys can take the entries of free keys.
		for key := range 5 {
			s.a.do(t, "multi.lock", "m", key)
			s.a.do(t, "multi.unlock", "m", key)
		}
		for key := range 20 {
			s.b.do(t, "multi.lock", "m", key)
			s.b.do(t, "multi.unlock", "m", key)
		}
		require.EqualValues(t, 3, s.a.do(t, "multi.lockall", "m", 10, 3))
		_, _, ok := keyState(t, s.arena, off, 11)
		require.True(t, ok, "the entry is in the bucket itself")
		s.a.do(t, "multi.unlockall", "m")
		if free, words := multiWords(t, s.arena, "m"); !free {
			t.Fatal(words)
		}
	})
}

func TestMultiLockKilledHolder(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "multi.open", "m", 1, 1)
		s.a.do(t, "multi.lock", "m", 9)
		s.a.do(t, "multi.unlock", "m", 9)
		s.a.do(t, "multi.lock", "m", 7)
		s.a.do(t, "multi.lockall", "m", 20, 8)
		w := s.b.blocked(t, off, 1, "multi.lock", "m", 7)
		x := s.c.blocked(t, off, 2, "multi.lock", "m", 25)
		s.a.kill(t)
		w.fails(t, syscall.EOWNERDEAD)
		x.fails(t, syscall.EOWNERDEAD)
		s.b.do(t, "multi.lock", "m", 9) // the key was free
		s.b.do(t, "multi.unlock", "m", 9)
		s.b.start(t, "multi.try", "m", 7).fails(t, syscall.EOWNERDEAD)
		s.b.start(t, "multi.lockall", "m", 19, 3).fails(t, syscall.EOWNERDEAD)
		s.b.start(t, "multi.spoil", "m", 7).fails(t, syscall.ENOTRECOVERABLE)
		s.c.start(t, "multi.lock", "m", 7).fails(t, syscall.ENOTRECOVERABLE)
		for _, key := range []int{7, 20, 21, 22, 23, 24, 25, 26, 27} {
			require.EqualValues(t, 1, s.c.do(t, "multi.recover", "m", key), "repairs of key %d", key)
			s.b.do(t, "multi.lock", "m", key)
			s.b.do(t, "multi.unlock", "m", key)
		}
		require.Zero(t, s.c.do(t, "multi.recover", "m", 7))
		if free, words := multiWords(t, s.arena, "m"); !free {
			t.Fatal(words)
		}
	})
}

// A process that has locked a key by one compare-and-swap dies, and no process waits for the key. The next Lock still
// reports the death.
func TestMultiLockKilledOpenHolder(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		s.b.do(t, "multi.open", "m", 1, 1)
		for range 2 {
			s.a.do(t, "multi.lock", "m", 7)
			s.a.do(t, "multi.unlock", "m", 7)
		}
		s.a.do(t, "multi.lock", "m", 7)
		s.a.kill(t)
		s.b.start(t, "multi.lock", "m", 7).fails(t, syscall.EOWNERDEAD)
		require.EqualValues(t, 1, s.b.do(t, "multi.recover", "m", 7))
		s.c.do(t, "multi.try", "m", 7)
	})
}

// With PolicyRelease the death of the holder passes a key to the next waiter in the queue.
func TestMultiLockKilledHolderRelease(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "multi.open", "m", release, 1)
		s.a.do(t, "multi.lockall", "m", 0, 8)
		w := s.b.blocked(t, off, 1, "multi.lock", "m", 3)
		x := s.b.blocked(t, off, 2, "multi.lock", "m", 7)
		s.a.kill(t)
		w.must(t)
		x.must(t)
		s.c.start(t, "multi.try", "m", 3).fails(t, syscall.EBUSY)
		s.c.do(t, "multi.lock", "m", 5)
	})
}

func TestMultiLockKilledWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "multi.open", "m", 1, 1)
		s.b.do(t, "multi.lockall", "m", 0, 8)
		s.a.blocked(t, off, 1, "multi.lock", "m", 2)
		s.a.blocked(t, off, 2, "multi.lock", "m", 7)
		w := s.c.blocked(t, off, 3, "multi.lock", "m", 2)
		x := s.c.blocked(t, off, 4, "multi.lock", "m", 7)
		s.a.kill(t)
		s.b.do(t, "multi.unlock", "m", 2)
		w.must(t)
		s.b.do(t, "multi.unlock", "m", 7)
		x.must(t)
		s.none(t, off)
	})
}

// A waiter is stopped, is granted a key, and is killed. The next waiter gets the key without an error, because the dead
// process never held it. The bucket may or may not have an entry for the key.
func TestMultiLockKilledGranted(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "multi.open", "m", 1, 1)
		s.b.do(t, "multi.lockall", "m", 0, 8)
		s.a.blocked(t, off, 1, "multi.lock", "m", 2)
		s.a.blocked(t, off, 2, "multi.lock", "m", 7)
		w := s.c.blocked(t, off, 3, "multi.lock", "m", 2)
		x := s.c.blocked(t, off, 4, "multi.lock", "m", 7)
		s.a.stop(t)
		s.b.do(t, "multi.unlock", "m", 2)
		s.b.do(t, "multi.unlock", "m", 7)
		s.a.kill(t)
		w.must(t)
		x.must(t)
		s.none(t, off)
	})
}
