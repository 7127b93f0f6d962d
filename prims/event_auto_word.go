package prims

import "fmt"

// tokenState is the word of an Event with automatic reset. It says where the token is. There is
// at most one token, apart from spare ones.
//
//	bits 0..1   place
//	bits 2..63  changes, so that no value comes back
//
//	place  meaning                                          left by
//	unset  there is no token (also all-zero memory)         a waiter, or the granter that handed it out; Reset
//	set    it is there for the next caller of Wait          Set
//	hand   the holder of the queue lock hands it out        the holder of the queue lock
//	taken  set, and the spare tokens will be forgotten      the holder of the queue lock
//
// unset and set change without the queue lock. Set changes unset to set. A caller of Wait, or
// Reset, changes it back. Both check first that no wait is queued, so that no waiter is
// overtaken. When the holder of the queue lock has taken the token in hand, the word changes only
// under the queue lock. So the replay after a death knows that the token was not given to any
// waiter yet.
//
//	writers: Set, Reset, Wait by CAS; the holder of the queue lock
//	readers: the same, IsSet
//	order:   seq-cst, against next
//	futex:   none
//	crash:   set while a wait is queued: the dead setter did not hand the token out, and
//	         reaps and periodic checks do so; hand, taken: the next holder of the queue lock
//	         goes on
type tokenState uint64

const (
	tokenUnset tokenState = iota
	tokenSet
	tokenHand
	tokenTaken

	tokenPlaceMask tokenState = 3
	tokenChange    tokenState = 4
)

func (s tokenState) place() tokenState { return s & tokenPlaceMask }

// to returns the word after the token has moved to place.
func (s tokenState) to(place tokenState) tokenState {
	return (s+tokenChange)&^tokenPlaceMask | place
}

// String renders the state for messages.
func (s tokenState) String() string {
	return fmt.Sprintf("%s, %d changes", [...]string{"unset", "set", "in hand", "taken"}[s.place()], uint64(s)/uint64(tokenChange))
}
