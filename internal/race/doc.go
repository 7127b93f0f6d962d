// Package race tells the race detector about synchronisation that it cannot see.
//
// The detector ignores memory that is neither Go heap nor Go data: an atomic
// operation on a word of a mapped file executes, but no happens-before edge is
// recorded. A correct lock in shared memory that guards ordinary Go variables is
// therefore reported as a data race, in its user's code. So every primitive
// repeats its edges here, on words that the detector does see:
//
//	Lock, after it has the lock          race.Acquire(key)
//	Unlock, before it gives it away      race.Release(key)
//	RUnlock, one of several releasers    race.ReleaseMerge(key)
//
// A key stands for the shared word, not for an address: a process may have a
// segment mapped more than once, and may have more than one handle on an object,
// and all of them must meet on one word. It is made of the identity of the
// segment's file and the offset in it.
//
// There are fewer words than keys. Two keys that fall on one word add edges
// which the program does not have. That can hide a race, with the probability of
// a collision, and cannot report one that is not there.
//
// The annotations claim more than they prove: a broken primitive that announces
// its edges looks sound. The algorithms are therefore also tested on heap words
// with no annotations at all, where the detector checks the atomics themselves.
//
// Without -race everything here is empty and inlined away.
package race
