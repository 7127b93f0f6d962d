package prims

import "fmt"

// fastWord is the part of its share of a Semaphore that a participant changes without
// the queue lock.
//
//	bits 0..30   used: permits that the participant has, and can release here
//	bits 31..61  spare: permits that are free, kept for the participant
//	bit  62      open: the participant changes the word without the queue lock
//
//	state   meaning                              left by
//	0       closed; the share is in permits      gather, reap; creation
//	open    the whole share is here              its participant, with the queue lock held
//	other   being closed, or opened              a death in gather or openShare; gather goes on
//
//	writers: its participant while it is open (CAS: acquires, releases); the holder of the queue lock
//	         (CAS: clears open, or adds to used; store: while it is not open)
//	readers: the same, tools
//	order:   acquire and release: from the release of a permit to its next acquire
//	futex:   none
//	crash:   used and spare of a name that is not current are free
//
// An acquire or a release moves permits between used and spare. So used + spare changes only
// under the queue lock, and the holder of the lock can count permits while others acquire and
// release. While a wait is queued all words are closed, so that the queue sees each release.
type fastWord uint64

const (
	fastMost                = 1<<31 - 1
	fastSpareShift          = 31
	fastOpen       fastWord = 1 << 62
)

func makeFast(used, spare uint64) fastWord {
	return fastWord(used | spare<<fastSpareShift)
}

func (q fastWord) used() uint64  { return uint64(q) & fastMost }
func (q fastWord) spare() uint64 { return uint64(q) >> fastSpareShift & fastMost }
func (q fastWord) open() bool    { return q&fastOpen != 0 }

// permits is how many of the semaphore's permits are in this word.
func (q fastWord) permits() uint64 { return q.used() + q.spare() }

// canAcquire reports whether n permits can be acquired without the queue lock, and acquire
// is the word after that.
func (q fastWord) canAcquire(n uint64) bool { return q.open() && q.spare() >= n }

func (q fastWord) acquire(n uint64) fastWord {
	return q + fastWord(n) - fastWord(n<<fastSpareShift)
}

// canRelease reports whether n permits can be released without the queue lock, and release
// is the word after that.
func (q fastWord) canRelease(n uint64) bool { return q.open() && q.used() >= n }

func (q fastWord) release(n uint64) fastWord {
	return q - fastWord(n) + fastWord(n<<fastSpareShift)
}

// String renders the word by the names of its parts.
func (q fastWord) String() string {
	switch {
	case q == 0:
		return "closed"
	case q.open():
		return fmt.Sprintf("open, %d used, %d spare", q.used(), q.spare())
	}
	return fmt.Sprintf("half open, %d used, %d spare", q.used(), q.spare())
}

// poolWord is the number of permits of a Semaphore that any participant can acquire.
//
//	bits 0..62  permits
//	bit  63     open: any participant changes the word without the queue lock
//
// Only the pool of a transferable semaphore is ever open.
//
//	writers: all participants while it is open (CAS: acquires, releases); the holder of the queue lock
//	         (CAS: clears open; store: while it is not open)
//	readers: the same, tools
//	order:   acquire and release
//	futex:   none
//	crash:   computed anew from the shares; in a transferable semaphore each change
//	         is one store, and the pool stays closed until the next holder of the queue
//	         lock opens it
type poolWord uint64

const poolOpen poolWord = 1 << 63

func (p poolWord) permits() uint64 { return uint64(p &^ poolOpen) }
func (p poolWord) open() bool      { return p&poolOpen != 0 }
