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
//	more than that            it is set; a token is there for the next caller   Set
//
// The waits of a participant that is dead or has left the arena do not count. So a token that such a wait was
// about to take is there for other waits.
//
// The bit announced may be set while nobody waits, which costs a wake. It is not cleared while the shares count
// another wait. At its beginning, a wait adds 1 to its share, and changes the word after that. So if a call misses
// that wait in the share, the call changes the word before the wait does, or the call's change fails.
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
// A change that ends a wait stores the slot of that wait in the word of the Event. The call that changes the word
// next first counts the wait off: by one CAS it subtracts the wait from the share, and copies the version of the word
// to the field ended. If the field ended has the present version of the word, the wait has been counted off already.
//
// Suppose that a process is stopped before its CAS of the share, and another process counts the wait off. Then
// ended has changed, so the CAS fails when the stopped process goes on. ended has an earlier value again after 2^32
// changes at the earliest.
//
//	writers: the participant; everybody who counts a wait off
//	readers: Set, Reset, IsSet, TryWait, waits that end, tools
//	order:   release when a wait begins, acquire by a Set
//	futex:   none
//	crash:   each value is a whole state; void if the name in the share is not current
type waitShare uint64

func (h waitShare) waits() uint64 { return uint64(uint32(h)) }
func (h waitShare) ended() uint32 { return uint32(h >> 32) }

// less returns the share after one wait was subtracted. That wait ended at the given version.
func (h waitShare) less(version uint32) waitShare {
	return waitShare(version)<<32 | waitShare(h.waits()-min(h.waits(), 1))
}
