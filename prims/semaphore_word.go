package prims

import "fmt"

// fastWord has the unused permits in the share that a participant has of a Semaphore. The participant changes it by a
// single CAS, without a record.
//
//	bits 0..31   tag    as in a recordedWord; it stays the same while the word is open
//	bits 32..62  spare  permits that are free, kept for the participant
//	bit  63      open   the participant changes the word
//
//	state   meaning                               left by
//	0       closed                                a record; creation
//	open    the participant acquires and          a record of its participant
//	        releases here
//	closed, spare is free, but only a record      any participant that wants permits
//	spare   can take it
//
//	writers: its participant while it is open (CAS: acquires, releases); everybody who clears open (CAS);
//	         everybody who carries a record out (CAS)
//	readers: the same, tools
//	order:   seq-cst: from the release of a permit to its next acquire
//	futex:   none
//	crash:   spare is free; the permits of a name that is not current are free, too
//
// An acquire or a release changes only the field spare. The other permits of the share are in use. While the word is
// open, no record reduces the permits of the share. Suppose that a participant loads first the word and then the number
// of permits of the share, and that its CAS of the word succeeds. Then the share still has at least that many permits:
// only a record opens the word, and each change of the bit named open changes the tag. So the CAS fails if the word was
// closed since the load, even if it was opened again.
//
// While a wait is queued, no share is open, so that every release goes through a record and can serve the queue.
// The record that queues the first wait makes sure of that: it is committed only if all shares were closed and had
// no spare permits before it.
type fastWord uint64

const (
	fastMost               = 1<<31 - 1
	fastShift              = 32
	fastOpenValue          = 1 << 31
	fastOpen      fastWord = fastOpenValue << fastShift
)

func (q fastWord) spare() uint64 { return uint64(q) >> fastShift & fastMost }
func (q fastWord) open() bool    { return q&fastOpen != 0 }
func (q fastWord) tag() uint32   { return uint32(q) }

// closed returns q with the bit named open cleared.
func (q fastWord) closed() fastWord {
	return fastWord(makeRecorded(uint32(q.spare()), q.tag()+1))
}

// canAcquire reports whether n permits can be acquired from this word without a record. If so, q.acquire(n) is the
// word after the acquire.
func (q fastWord) canAcquire(n uint64) bool { return q.open() && q.spare() >= n }

func (q fastWord) acquire(n uint64) fastWord { return q - fastWord(n<<fastShift) }

// canRelease reports whether n permits can be released into this word without a record. The parameter permits is
// the number of permits that the share has. If n can be released, q.release(n) is the word after the release.
func (q fastWord) canRelease(n, permits uint64) bool { return q.open() && q.spare()+n <= permits }

func (q fastWord) release(n uint64) fastWord { return q + fastWord(n<<fastShift) }

// String describes the word by the names of its parts.
func (q fastWord) String() string {
	switch {
	case q.open():
		return fmt.Sprintf("open, %d spare", q.spare())
	case q.spare() == 0:
		return "closed"
	}
	return fmt.Sprintf("closed, %d spare", q.spare())
}

// poolWord is the number of permits of a Semaphore that any participant can acquire, modulo 2^31.
//
//	bits 0..31   tag      as in a fastWord
//	bits 32..62  permits
//	bit  63      open     any participant changes the word
//
// The pool is open only in a transferable semaphore of fewer than 2^31 permits, and only while no wait is queued.
//
//	writers: all participants while it is open (CAS: acquires, releases); everybody who clears open (CAS);
//	         everybody who carries a record out (CAS)
//	readers: the same, tools
//	order:   seq-cst
//	futex:   none
//	crash:   a pool that is closed though no wait is queued stays so until the next record
type poolWord = fastWord
