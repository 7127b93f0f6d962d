// Package race tells the race detector about synchronisation that it cannot see.
//
// The detector ignores memory that is neither Go heap nor Go data: an atomic
// operation on a word of a mapped file executes, but no happens-before edge is
// recorded. A correct lock in shared memory that guards ordinary Go variables is
// therefore reported as a data race, in its user's code. So every primitive
// repeats its edges here, on words that the detector does see:
//
//	Lock, after it has the lock          race.Acquire(key)
//	Unlock, before it frees the lock     race.Release(key)
//	RUnlock, one of several releasers    race.ReleaseMerge(key)
//
// A key stands for a word in shared memory, and not for an address. A process may
// have a segment mapped more than once, and may have several handles on an object.
// All of them must use the same key. So the key is computed from the identity of
// the segment's file and the offset in that file.
//
// There are fewer words than keys. If two keys share a word, the detector sees
// happens-before edges that the program does not have. So it may miss a race, but
// it never reports a race that does not exist.
//
// The annotations prove nothing about the primitives: a broken primitive that
// reports its edges looks correct to the detector. Therefore the algorithms are
// also tested without annotations, on words of the Go heap. There the detector
// checks the atomic operations themselves.
//
// Without -race everything here is empty and inlined away.
package race
