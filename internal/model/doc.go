// Package model explores every state that a small protocol can reach, so that a
// test can claim what no amount of running shows: that no order of steps breaks
// it.
//
// [Explore] goes through the states of anything that can say what follows a
// state. [System] says it for threads of several processes that share words:
//
//   - Memory is TSO, as on amd64: a plain store waits in a buffer of its thread
//     and reaches memory some time later, in order; the thread's own loads see
//     it at once. A read-modify-write empties the buffer first.
//   - Membarrier empties the buffers of all threads of the processes that are
//     registered for it.
//   - Futexes compare and go to sleep in one step, wake in the order of arrival,
//     and may wake without a reason. A sleeper that is stopped leaves the queue
//     and starts its wait again, with the value that it came with.
//   - A process that is killed may do further steps or none, for the notice of
//     its death comes from one thread while others still run; the membarrier of
//     whoever reaps it ends that.
//
// A step is mandatory or optional. What the environment does, a kill, a spurious
// wake, the end of a context, a new call, is optional: nothing may rely on it.
// The exploration fails if a state violates the invariant, or if a state can be
// reached from which mandatory steps alone cannot lead to one where all is done.
// The latter finds lost wakes, deadlocks, and livelocks that have no way out; a
// loop that chance would leave is none of them.
package model
