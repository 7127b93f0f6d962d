//go:build linux

package cinterop

import (
	"encoding/binary"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
)

// A multiEnd describes how a process dies or is stopped: in a call for the key 50, at one of the crash points of that
// call.
type multiEnd struct {
	verb   string
	keys   int  // how many keys of the bucket others hold; a bucket with two blocks has entries for 11 keys
	waits  bool // another process waits for key 50
	points []string
	holds  bool // the process holds key 50 at these points
}

var multiEnds = []multiEnd{
	{"multi.lock", 1, false, []string{"record.commit.written"}, false},
	{"multi.lock", 1, false, []string{
		"record.commit.named", "record.complete.begun:1", "record.complete.begun:2", "record.commit.completed", "multilock.lock.taken",
	}, true},
	{"multi.lock", 11, false, []string{
		"arena.slotrecord.claimed:2", "arena.slotrecord.before_push:2", "arena.slotrecord.pushed:2", "multilock.block.pushed", "record.commit.written",
	}, false},
	{"multi.lock", 11, false, []string{"record.commit.named", "record.complete.begun:1", "record.complete.begun:2", "multilock.lock.taken"}, true},
	{"multi.unlock", 1, false, []string{"multilock.unlock.freed"}, false},
	{"multi.unlock", 1, true, []string{"record.commit.written:2"}, true},
	{"multi.unlock", 1, true, []string{
		"record.commit.named:2", "record.complete.begun:3", "record.complete.begun:4", "record.tell.resolved", "record.commit.completed:2",
		"multilock.unlock.committed", "record.wake.before",
	}, false},
	{"multi.unlock", 11, true, []string{"record.commit.named:2", "record.tell.resolved", "multilock.unlock.committed"}, false},
}

// eachMultiEnd runs f for each of multiEnds and each of its crash points. victim is the language of the process that dies
// or is stopped, and others has the languages of the other processes.
func eachMultiEnd(t *testing.T, victim string, others []string, f func(t *testing.T, victim, lang string, e multiEnd, point string)) {
	for _, lang := range others {
		for _, e := range multiEnds {
			for _, point := range proctest.Sample(e.points, 2) {
				t.Run(fmt.Sprintf("%s/%s beside %d/%s", lang, strings.TrimPrefix(e.verb, "multi."), e.keys, point), func(t *testing.T) { f(t, victim, lang, e, point) })
			}
		}
	}
}

// A process dies at a crash point of a call. The other keys of the bucket and their waiters stay as they were, even
// keys for which the bucket had no entry before the call.
func TestMultiLockKilledAtEachPoint(t *testing.T) {
	t.Parallel()
	eachMultiEnd(t, "c", []string{"go", "c"}, multiKilled)
}

func multiKilled(t *testing.T, victim, lang string, e multiEnd, point string) {
	name := newArena(t)
	b, c := newAgent(t, lang, name, "b"), newAgent(t, lang, name, "c")
	off := b.do(t, "multi.open", "m", 1, 1)
	b.do(t, "multi.lockall", "m", 0, e.keys)
	var all []pending
	for key := range e.keys {
		all = append(all, c.blocked(t, off, uint64(key+1), "multi.lock", "m", key))
	}
	a := newAgent(t, victim, name, "a", "SHMSYNC_CRASHPOINT="+point)
	a.mortal = true
	var own pending
	if e.verb == "multi.unlock" {
		a.do(t, "multi.lock", "m", 50)
	}
	if e.waits {
		own = b.blocked(t, off, uint64(e.keys+1), "multi.lock", "m", 50)
	}
	a.starts(e.verb + " m 50")
	a.ends(t)
	switch {
	case e.waits && e.holds:
		own.fails(t, syscall.EOWNERDEAD)
		b.do(t, "multi.recover", "m", 50)
		b.do(t, "multi.lock", "m", 50)
	case e.waits:
		own.must(t)
	case e.holds:
		b.start(t, "multi.lock", "m", 50).fails(t, syscall.EOWNERDEAD)
		require.EqualValues(t, 1, b.do(t, "multi.recover", "m", 50))
		b.do(t, "multi.lock", "m", 50)
	default:
		b.do(t, "multi.lock", "m", 50)
	}
	c.start(t, "multi.lock", "m", 0, 20).fails(t, syscall.ETIMEDOUT)
	b.do(t, "multi.unlockall", "m")
	for _, w := range all {
		w.must(t)
	}
	c.do(t, "multi.unlockall", "m")
	if free, words := multiWords(t, name, "m"); !free {
		t.Fatal(words)
	}
	sound(t, name)
}

// A process that is stopped at a crash point of a call delays only processes that want the same key. Other processes
// lock, unlock and wait for other keys of the bucket.
func TestMultiLockStoppedAtEachPoint(t *testing.T) {
	t.Parallel()
	eachMultiEnd(t, "c", []string{"go", "c"}, multiStopped)
}

func multiStopped(t *testing.T, victim, lang string, e multiEnd, point string) {
	name := newArena(t)
	b, c := newAgent(t, lang, name, "b"), newAgent(t, lang, name, "c")
	off := b.do(t, "multi.open", "m", 1, 1)
	b.do(t, "multi.lockall", "m", 0, e.keys)
	a := newAgent(t, victim, name, "a", "SHMSYNC_CRASHPOINT_STOP="+point)
	a.mortal = true
	var own pending
	if e.verb == "multi.unlock" {
		a.do(t, "multi.lock", "m", 50)
	}
	if e.waits {
		own = b.blocked(t, off, 1, "multi.lock", "m", 50)
	}
	ends := a.start(t, e.verb, "m", 50)
	a.awaitStop(t)
	queued := uint64(0)
	if e.waits && e.holds {
		queued = 1
	} else if e.waits {
		own.must(t) // the wait was granted the key, and returns
	}
	w := c.blocked(t, off, queued+1, "multi.lock", "m", 0)
	b.do(t, "multi.unlock", "m", 0)
	w.must(t)
	c.do(t, "multi.lockall", "m", 20, 10)
	b.start(t, "multi.lock", "m", 25, 5).fails(t, syscall.ETIMEDOUT)
	b.start(t, "multi.try", "m", 0).fails(t, syscall.EBUSY)
	switch {
	case e.holds:
		c.start(t, "multi.lock", "m", 50, 5).fails(t, syscall.ETIMEDOUT)
	case !e.waits:
		c.do(t, "multi.lock", "m", 50)
		c.do(t, "multi.unlock", "m", 50)
	}
	c.do(t, "multi.unlockall", "m")
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGCONT))
	ends.must(t)
	if e.waits && e.holds {
		own.must(t)
	}
	if e.verb == "multi.lock" {
		a.do(t, "multi.unlock", "m", 50)
	}
	b.do(t, "multi.unlockall", "m")
	if free, words := multiWords(t, name, "m"); !free {
		t.Fatal(words)
	}
	sound(t, name)
}

// A participant dies after it has committed a record and before the record is carried out. The next participant in the
// same slot carries this record out before it makes a record in another bucket.
func TestMultiLockInheritsARecord(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		t.Run(lang, func(t *testing.T) {
			name := newArena(t)
			off := newAgent(t, "c", name, "stays").do(t, "multi.open", "m", 1, 16)
			x := newAgent(t, "c", name, "dies", "SHMSYNC_CRASHPOINT=record.complete.begun")
			x.mortal = true
			x.starts("multi.lock m 7")
			x.ends(t)
			heir := newAgent(t, lang, name, "heir")
			for key := 100; key < 140; key++ { // in each of the buckets
				if key%16 == 7 {
					continue
				}
				heir.do(t, "multi.lock", "m", key)
				heir.do(t, "multi.unlock", "m", key)
			}
			heir.start(t, "multi.lock", "m", 7).fails(t, syscall.EOWNERDEAD)
			require.EqualValues(t, 1, heir.do(t, "multi.recover", "m", 7))
			heir.do(t, "multi.lock", "m", 7)
			require.NotZero(t, off)
			sound(t, name)
		})
	}
}

// The holder of a key dies, and the other processes have never opened the MultiLock. One of them marks the key
// owner-dead, or frees it if the policy is PolicyRelease. It also does so if the holder got the key by a grant, which
// closes the owner word of the key.
func TestMultiLockHolderDiesBesideStrangers(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		for _, policy := range []int{0, release} {
			for _, closed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/policy %d/closed %v", lang, policy, closed), func(t *testing.T) {
					multiStrangers(t, lang, policy, closed)
				})
			}
		}
	}
}

func multiStrangers(t *testing.T, lang string, policy int, closed bool) {
	name := newArena(t)
	a := newAgent(t, "c", name, "holder")
	off := a.do(t, "multi.open", "m", policy, 1)
	for key := range 5 { // two of the keys are in a block
		a.do(t, "multi.lock", "m", key)
	}
	if closed {
		b := newAgent(t, "c", name, "had it before")
		b.do(t, "multi.lock", "m", 7)
		w := a.blocked(t, off, 1, "multi.lock", "m", 7)
		b.do(t, "multi.unlock", "m", 7)
		w.must(t)
		b.leaves(t)
	}
	newAgent(t, lang, name, "stranger")
	_, dead, ok := keyState(t, name, off, 1)
	require.True(t, ok)
	require.NotZero(t, dead)
	a.kill(t)
	eventually(t, "the stranger has reaped", name, func() bool {
		kind, named, _ := keyState(t, name, off, 1)
		return named == 0 || kind == fairDeadKind
	})
	u := newAgent(t, lang, name, "user")
	for _, key := range []int{0, 1, 2, 3, 4, 7} {
		if policy == 0 && (key != 7 || closed) {
			u.start(t, "multi.lock", "m", key).fails(t, syscall.EOWNERDEAD)
			require.EqualValues(t, 1, u.do(t, "multi.recover", "m", key))
		}
		u.do(t, "multi.lock", "m", key)
	}
	u.do(t, "multi.unlockall", "m")
	if free, words := multiWords(t, name, "m"); !free {
		t.Fatal(words)
	}
	sound(t, name)
}

// All calls in C return, with whatever result, after a peer has overwritten words of a MultiLock or of the list of its
// blocks.
func TestMultiLockOverwritten(t *testing.T) {
	t.Parallel()
	const bucket = 128
	for _, word := range []int{bucket, bucket + 16, bucket + 24, bucket + 32, bucket + 40, bucket + 48, bucket + 56, bucket + 80 + 16} {
		for _, value := range []uint64{1 << 32, 5<<32 | 7, 0x3000 << 32, 7<<61 | 1, 3<<61 | 2, 2048, 1<<64 - 1} {
			t.Run(fmt.Sprintf("%d/%#x", word, value), func(t *testing.T) {
				name := newArena(t)
				x := newAgent(t, "c", name, "x")
				off := x.do(t, "multi.open", "m", 1, 1)
				x.do(t, "multi.lock", "m", 7)
				w := x.start(t, "multi.lock", "m", 7, 200)
				eventually(t, "a wait in m", name, func() bool {
					if x.do(t, "waiters", "-", off) == 1 {
						return true
					}
					if len(w.c) > 0 { // the wait may have timed out before the test saw it
						w = x.start(t, "multi.lock", "m", 7, 200)
					}
					return false
				})
				image, write := body(t, name, off)
				binary.LittleEndian.PutUint64(image[word:], value)
				write(image)
				x.start(t, "multi.try", "m", 7).wait(t)
				x.start(t, "multi.lock", "m", 7, 10).wait(t)
				x.start(t, "multi.unlock", "m", 7).wait(t)
				x.start(t, "multi.lockall", "m", 0, 20, 50).wait(t)
				x.start(t, "multi.state", "m", 7).wait(t)
				w.wait(t)
				x.start(t, "multi.unlockall", "m").wait(t)
			})
		}
	}
}

// The blocks of a MultiLock are freed with it, even if a process in C dies while it frees or adds a block.
func TestMultiLockBlocksAreFreed(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		for _, point := range []string{"", "arena.slotrecord.freeing", "arena.slotrecord.freeing:7", "arena.slotrecord.before_push:3", "arena.slotrecord.pushed:3"} {
			t.Run(lang+"/"+point, func(t *testing.T) {
				name := newArena(t)
				x := newAgent(t, lang, name, "stays")
				x.do(t, "mutex.open", "m", 1)
				x.do(t, "churn", "before", 7)
				a, err := arena.Attach(name, nil)
				require.NoError(t, err)
				defer a.Close()
				before := a.Stats().Objects
				victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT="+point)
				victim.mortal = true
				frees := strings.Contains(point, "freeing")
				user := victim
				if frees || point == "" {
					user = newAgent(t, lang, name, "user")
				}
				user.do(t, "multi.open", "x", 1, 1)
				if user == victim {
					user.starts("multi.lockall x 0 100")
					user.ends(t)
				} else {
					require.EqualValues(t, 100, user.do(t, "multi.lockall", "x", 0, 100))
					user.do(t, "multi.unlockall", "x")
					require.GreaterOrEqual(t, int(a.Stats().SlotRecords), 1+(100-3)/4)
					user.leaves(t)
				}
				if frees {
					victim.starts("gone.delete x")
					victim.ends(t)
				} else {
					eventually(t, "nobody has it open", name, func() bool { return x.start(t, "gone.delete", "x").wait(t).err == 0 })
				}
				sound(t, name)
				leftovers(t, name, x)
				require.Equal(t, before, a.Stats().Objects)
				require.Zero(t, a.Stats().SlotRecords)
			})
		}
	}
}
