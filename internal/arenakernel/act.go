package arenakernel

import (
	"runtime"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.act.begun")
	_ = crashpoint.Register("arena.act.published")
	_ = crashpoint.Register("arena.act.verified")
)

// slotActs is the offset of the act words in a slot. A thread may act on another participant, for
// example take a lock from a dead participant. Before that, the thread publishes the ID of the
// participant in an act word of its own slot. Act words are hazard pointers, as described by
// Michael: while an act word contains an ID, no new participant gets that ID, however long the
// thread is stopped. See docs/design/0030-generations.md.
//
//	thread that takes a word from n     joiner that renews the slot of n
//	publishes n in an act word          searches all words for IDs
//	reads the word again                reads all act words: does not reuse their IDs
//	asks whether n is current           records a window
//	changes the word by CAS
//	clears the act word
//
// There are two cases. In the first case, the joiner finds n in the word or in the act word, and
// does not reuse the ID n. In the second case, the joiner finds n in neither. So the joiner has
// searched the word before the thread reads it again, and the word did not contain n. If the thread
// still finds n in the word, a new participant with the ID n has written the word since. So the
// thread acts on this new participant, and asks whether it is current.
//
//	writers: threads of the owner, one at a time; the joiner that takes the slot clears what its
//	         dead predecessor has left
//	readers: joiners that renew slots
//	order:   seq_cst: published before the word is read again
//	futex:   none
//	crash:   the ID counts as found until the slot is taken again
const slotActs Offset = 1792

const actWords = 8 // the most threads of a process that use act words at the same time; a further thread waits

func (c *core) actWord(slot, k int) *atomic.Uint32 {
	return c.u32(c.slot(slot) + slotActs + Offset(k*4))
}

// act is the use of one act word by one thread. The thread publishes in the word the ID of the
// participant that it acts on. Private memory of this process records which act words are in use. So
// a peer that overwrites the arena cannot make a thread wait for an act word.
type act struct {
	word  *atomic.Uint32
	inUse *atomic.Bool
}

// beginAct publishes the ID n in an act word, so that no new participant gets the ID n. The caller
// then reads once more the word that it is going to change. Afterwards it calls the method end of the
// result, which clears the act word. The caller must not block between beginAct and end.
func (c *core) beginAct(n ParticipantID) act {
	crashpoint.Hit("arena.act.begun")
	for {
		for k := range c.acting {
			if c.acting[k].CompareAndSwap(false, true) {
				a := act{c.actWord(c.self.Slot(), k), &c.acting[k]}
				// sync(arena.act): release
				a.word.Store(uint32(n))
				crashpoint.Hit("arena.act.published")
				return a
			}
		}
		runtime.Gosched()
	}
}

func (a act) end() {
	a.word.Store(0)
	a.inUse.Store(false)
}

// forgetActs clears the act words in the slot of this process. The participant that had the slot
// before may have died while it used them.
func (c *core) forgetActs() {
	for k := range actWords {
		c.actWord(c.self.Slot(), k).Store(0)
	}
}

// sharedWord is implemented by *atomic.Uint32 and *atomic.Uint64.
type sharedWord[T uint32 | uint64] interface {
	Load() T
	CompareAndSwap(old, new T) bool
}

// TakeFromDead changes the word w from the value old, which names the participant n, to the value
// new. It does so only if n is not current, that is, if n has died or left. It reports whether it
// changed the word. Every change of a word that is made because a participant has died must use
// TakeFromDead, unless the caller holds a lock that protects the word. Otherwise the caller could
// be stopped after it has read the word, and continue when another participant has the ID n.
func TakeFromDead[T uint32 | uint64](a *Arena, n ParticipantID, w sharedWord[T], old, new T) bool {
	return takeFrom(&a.core, n, w, old, new, false)
}

// TakeFromGone is TakeFromDead for a word that guards data, such as the owner word of a lock. It
// changes the word only if n is gone, that is, if no thread and no system call of n can write to
// the arena any more.
func TakeFromGone[T uint32 | uint64](a *Arena, n ParticipantID, w sharedWord[T], old, new T) bool {
	return takeFrom(&a.core, n, w, old, new, true)
}

func takeFrom[T uint32 | uint64](c *core, n ParticipantID, w sharedWord[T], old, new T, gone bool) bool {
	if n == 0 || n == c.self || c.self == 0 {
		return w.CompareAndSwap(old, new) // without an act word: this process is leaving, or has no slot yet
	}
	defer c.beginAct(n).end()
	if w.Load() != old || c.current(n) || gone && !c.gone(n) {
		return false
	}
	crashpoint.Hit("arena.act.verified")
	return w.CompareAndSwap(old, new)
}

// WhileGone calls f if two conditions hold. The word w still contains the value old, which names
// the participant n. And n is this participant, or nothing writes to the arena for n any more. The
// function f changes another word. While f runs, no other participant gets the ID n, so w names the
// same participant all the time. f must not block.
func WhileGone[T uint32 | uint64](a *Arena, n ParticipantID, w sharedWord[T], old T, f func()) {
	c := &a.core
	acts := n != 0 && n != c.self && c.self != 0
	if acts {
		defer c.beginAct(n).end()
	}
	if w.Load() != old || acts && (c.current(n) || !c.gone(n)) {
		return
	}
	f()
}

// Reaps reports whether the reap of the participant with the ID dead also recovers what the participant with the ID o
// has left. This is so if o has the same slot and is not a later ID, and if no living participant has the ID o. While
// this process leaves, Reaps is also true for its own ID, because a leaving process recovers by itself what it holds.
func (a *Arena) Reaps(dead, o ParticipantID) bool {
	return dead.Covers(o) && (o == a.self || !a.isCurrent(o))
}
