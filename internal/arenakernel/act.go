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

// slotActs is the field of a slot with its act words. A thread that acts on another participant,
// such as a dead one, publishes the other's ID in an act word of its own slot. Act words are hazard
// pointers, after Michael: while an ID is in an act word, no new participant gets that ID, however
// long the thread is stopped. See docs/design/0030-generations.md.
//
//	thread that takes a word from n     joiner that renews the slot of n
//	publishes n in an act word          searches all words for IDs
//	reads the word again                reads all act words: their IDs count as found
//	asks whether n is current           records a window
//	changes the word by CAS
//	clears the act word
//
// Either the joiner finds n, in the word or in the act word, or the thread reads the word after the
// search. In the second case, the word no longer holds n, unless a participant that has got the ID
// n since then has written it. Then the thread finds this new participant, current or dead.
//
//	writers: threads of the owner, one at a time; the joiner that takes the slot clears what its
//	         dead predecessor has left
//	readers: joiners that renew slots
//	order:   seq_cst: published before the word is read again
//	futex:   none
//	crash:   the ID counts as found until the slot is taken again
const slotActs Offset = 1792

const actWords = 8 // threads that act at once; further threads wait for a few instructions

func (c *core) actWord(slot, k int) *atomic.Uint32 {
	return c.u32(c.slot(slot) + slotActs + Offset(k*4))
}

// act is the use of an act word by a thread. Private memory of this process says which of its act
// words are in use, so that no bytes that a peer writes can make a thread wait for an act word.
type act struct {
	word  *atomic.Uint32
	inUse *atomic.Bool
}

// beginAct publishes n in an act word, and end clears it. In between, the caller reads again the
// word that it is going to change, and does not wait.
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

// forgetActs clears the act words that the dead predecessor left in this joiner's slot.
func (c *core) forgetActs() {
	for k := range actWords {
		c.actWord(c.self.Slot(), k).Store(0)
	}
}

// sharedWord is an atomic.Uint32 or atomic.Uint64.
type sharedWord[T uint32 | uint64] interface {
	Load() T
	CompareAndSwap(old, new T) bool
}

// TakeFromDead replaces old, a value of w that names n, with new, unless n is current. It reports
// whether it did. Use it for every change of a word that is made because a participant has died,
// unless a lock that the caller holds protects the word. Otherwise the caller could be stopped
// after it has read the word, until another participant has the same ID.
func TakeFromDead[T uint32 | uint64](a *Arena, n ParticipantID, w sharedWord[T], old, new T) bool {
	return takeFrom(&a.core, n, w, old, new, false)
}

// TakeFromGone is TakeFromDead for a word that guards data: n must be gone.
func TakeFromGone[T uint32 | uint64](a *Arena, n ParticipantID, w sharedWord[T], old, new T) bool {
	return takeFrom(&a.core, n, w, old, new, true)
}

func takeFrom[T uint32 | uint64](c *core, n ParticipantID, w sharedWord[T], old, new T, gone bool) bool {
	if n == 0 || n == c.self || c.self == 0 {
		return w.CompareAndSwap(old, new) // this process leaves, or it has no slot yet
	}
	defer c.beginAct(n).end()
	if w.Load() != old || c.current(n) || gone && !c.gone(n) {
		return false
	}
	crashpoint.Hit("arena.act.verified")
	return w.CompareAndSwap(old, new)
}

// WhileGone calls f if w still has old, which names n, and if n is gone or is this participant. It
// reports whether it did. f changes another word, and relies on the fact that w has named n all the
// time. No participant gets the ID n before f returns. f does not wait.
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

// Reaps reports whether a reap of dead takes back what belongs to o: the reap of dead covers o, and
// no other participant has the ID o by now. A process that leaves takes back what it holds itself.
func (a *Arena) Reaps(dead, o ParticipantID) bool {
	return dead.Covers(o) && (o == a.self || !a.isCurrent(o))
}
