package prims

import "sync/atomic"

// fairWord is the owner word of a FairMutex. It is a recordedWord, that is, 32 bits of value with a tag that
// counts the changes. Its value is an ownerWord.
//
//	bits 0..31   tag    as in a recordedWord; it stays the same while the word is open
//	bits 32..63  value
//
//	kind  name  meaning                                              left by
//	1     0     free and open; a new FairMutex                       Unlock; a record
//	1     n     held by n, and open                                  Lock; a record
//	0     0     free (also all-zero memory)                          everybody who closes the word
//	0     n     held by n                                            everybody who closes the word; a record
//	2     n     granted to n; held by n once the field accepted      a record
//	            has n and the tag of this word
//	3     n     owner-dead: n died while it held; it is not held     a record; a reaper, if the word was open
//	4     n     being recovered by n                                 a record
//	5     0     not recoverable: a repair failed                     a record
//
// Every other value is corrupt. While the word is open, no wait is queued, and Lock and Unlock change the word by one
// CAS of its value. Any process may close the word, by a CAS that changes the tag. Then only records change the word.
// A call that makes a record first closes the word and then reads it. If another record changes the word after that,
// the CAS of the commit word by this call fails. A record opens the word again if it leaves the queue empty, and the
// lock free or held by a living holder.
//
//	writers: everybody while it is open (CAS: Lock, Unlock, close, reapers); everybody who carries a record
//	         out (CAS)
//	readers: the same, tools
//	order:   seq-cst: from an Unlock to the next Lock
//	futex:   none
//	crash:   the word names the dead participant until a reap; if it is closed though nobody is queued, it stays
//	         closed until the next record
type fairWord = recordedWord

// fairFree is the value of an owner word that fast paths may change, while the lock is free.
const fairFree = ownerBiased

// closeFair closes an owner word, so that from then on only records change it, and returns the word.
func closeFair(w *atomic.Uint64) fairWord {
	for {
		v := fairWord(w.Load())
		// sync(fairmutex.owner): acquire
		if !ownerOpen(v) {
			return v
		}
		if closed := v.with(uint32(ownerState(v))); w.CompareAndSwap(uint64(v), uint64(closed)) {
			return closed
		}
	}
}
