package prims

import "fmt"

// tokenState is the word of an Event with automatic reset. Every change of this word is one compare-and-swap.
//
//	bits 0..31   version    counts the changes, so that no value comes back soon; waiters sleep on this half
//	bit  32      announced  a wait may be counted in a share
//	bits 33..52  tokens     how many waits may end
//	bits 53..63  slot       the slot whose wait the last change ended; its share may still count that wait; 0: none
//
// The share of a participant is a word that counts its waits; see waitShare. The number of tokens is at most the
// number of waits plus 1, unless a waiting participant has died or a wait was given up:
//
//	tokens                    meaning                                           left by
//	0                         it is not set                                     a wait; TryWait; Reset
//	1 to the number of waits  it is not set; each token is about to end a wait  Set; a wait; TryWait; Reset
//	more than the waits       it is set; a token is there for the next caller   Set
//
// The waits of a participant that is dead or has left the arena do not count. So a token that such a wait was
// about to take is there for other waits.
//
// The bit announced may be set while nobody waits; that costs a wake. A change clears the bit only if the shares count
// no other wait. A wait that begins adds 1 to its share, and then changes the word. Suppose that a call reads the
// share before that addition. If the wait changes the word first, the CAS of the call fails. If the call changes the
// word first, the wait finds the new word.
//
//	writers: Set, Reset, TryWait; waits when they begin and end
//	readers: the same, IsSet, periodic checks, tools
//	order:   release by a Set, acquire by the wait that takes the token
//	futex:   WAIT on the low half by waits; WAKE 1 by Set, by a wait that leaves tokens behind, by periodic checks;
//	         WAKE all by reaping
//	crash:   each value is a whole state. The next change first subtracts the ended wait from the share of the slot
type tokenState uint64

const (
	tokenVersion   tokenState = 1<<32 - 1
	tokenAnnounced tokenState = 1 << 32

	tokenCountShift            = 33
	tokenSlotShift             = 53
	tokenCountMask  tokenState = 1<<tokenSlotShift - 1<<tokenCountShift

	// tokensMost is the greatest number of tokens. A Set that would make more tokens does nothing.
	tokensMost = uint64(tokenCountMask >> tokenCountShift)
)

func (s tokenState) version() uint32 { return uint32(s) }
func (s tokenState) announced() bool { return s&tokenAnnounced != 0 }
func (s tokenState) tokens() uint64  { return uint64(s & tokenCountMask >> tokenCountShift) }
func (s tokenState) slot() int       { return int(s >> tokenSlotShift) }

// quiet reports whether no wait is announced, and no wait has to be subtracted from a share. Then a call need not
// read the shares.
func (s tokenState) quiet() bool { return s&^(tokenVersion|tokenCountMask) == 0 }

// with returns the word after a change that ends no wait and leaves the given number of tokens.
func (s tokenState) with(tokens uint64) tokenState {
	return tokenState(s.version()+1) | s&tokenAnnounced | tokenState(tokens)<<tokenCountShift
}

// ended returns the word after a change that ends a wait of the participant in a slot and leaves the given
// number of tokens.
func (s tokenState) ended(slot int, tokens uint64) tokenState {
	return s.with(tokens) | tokenState(slot)<<tokenSlotShift
}

// alone returns s, but without the bit announced if the parameter others says that there are no other waits.
func (s tokenState) alone(others bool) tokenState {
	if others {
		return s
	}
	return s &^ tokenAnnounced
}

// String renders the state for messages.
func (s tokenState) String() string {
	return fmt.Sprintf("tokens %d, announced %v, version %d", s.tokens(), s.announced(), s.version())
}

// waitShare is a word that counts the waits of one participant.
//
//	bits 0..31   waits  how many waits have begun and are not subtracted yet
//	bits 32..63  ended  the version that the Event's word got from the end of the wait that was subtracted last
//
// A change that ends a wait stores the slot of that wait in the word of the Event. The next call that changes the word
// first counts the wait off: one CAS of the share subtracts the wait, and stores the version of the word in the field
// ended. If the field has the present version of the word already, another call has counted the wait off.
//
// If a process is stopped before this CAS, another process counts the wait off, and so changes the field ended. When
// the stopped process goes on, its CAS fails. An earlier value of the field comes back after 2^32 changes at the
// earliest.
//
//	writers: the participant; everybody who counts a wait off
//	readers: Set, Reset, IsSet, TryWait, waits that end, tools
//	order:   release when a wait begins, acquire by a Set
//	futex:   none
//	crash:   each value is a whole state; the share is void if its participant is not current
type waitShare uint64

func (h waitShare) waits() uint64 { return uint64(uint32(h)) }
func (h waitShare) ended() uint32 { return uint32(h >> 32) }

// less returns the share without one wait, which ended when the word got the given version.
func (h waitShare) less(version uint32) waitShare {
	return waitShare(version)<<32 | waitShare(h.waits()-min(h.waits(), 1))
}
