package prims

import "fmt"

// futexState is the one word of a Futex.
//
//	bit  0      announced  a waiter may sleep, or be on the way to it
//	bit  1      stopped    no post counts any more; never cleared
//	bits 2..63  counter    posts
//
//	announced  stopped  meaning                               left by
//	0          0        nobody sleeps (also all-zero memory)  Post
//	1          0        a Post must wake                      Wait
//	0          1        stopped, everybody was woken          Stop
//	1          1        stopped                               no correct process
//
// Waiters sleep on the low half of the word: 30 bits of the counter, and the bits announced and stopped. Every Post
// changes the low half. A waiter reads the low half before it sleeps on it. In between, the same value can come back
// only after 2^30 posts.
//
// The bit announced may be 1 when no waiter sleeps; that costs one wake. While a waiter sleeps for a token that is not
// reached yet, the bit is 0 only between a Post and its wake.
//
//	writers: Post, Stop, Wait (any process), each by CAS
//	readers: Get, Wait
//	order:   release by Post and Stop, acquire by Get and Wait
//	futex:   WAIT on the low half by Wait, WAKE all by Post and Stop
//	crash:   a poster that dies after its CAS has posted. If it has not made the wake, a reaper
//	         makes it, or the periodic check of a waiter within 100 ms
type futexState uint64

const (
	futexAnnounced futexState = 1
	futexStopped   futexState = 2
	futexPost      futexState = 4
	futexShift                = 2

	maxToken = 1<<(64-futexShift) - 1
)

func (s futexState) counter() uint64    { return uint64(s >> futexShift) }
func (s futexState) announced() bool    { return s&futexAnnounced != 0 }
func (s futexState) stopped() bool      { return s&futexStopped != 0 }
func (s futexState) posted() futexState { return (s + futexPost) &^ futexAnnounced }
func (s futexState) stop() futexState   { return (s | futexStopped) &^ futexAnnounced }

// reached reports whether a wait for token is over.
func (s futexState) reached(token uint64) bool { return s.counter() >= token }

// String renders the state by the names of its parts.
func (s futexState) String() string {
	str := fmt.Sprintf("counter %d", s.counter())
	if s.stopped() {
		str += ", stopped"
	}
	if s.announced() {
		str += ", announced"
	}
	return str
}
