// Package model explores every state that a small protocol can reach. So a test can show that no order of steps
// breaks the protocol, which no number of real runs can show.
//
// [Spec.Explore] explores any system that can list the successors of a state. [System] does so for
// threads of several processes that share words:
//
//   - Memory is TSO, as on amd64: a plain store waits in a buffer of its thread
//     and reaches memory some time later, in order; the thread's own loads see
//     it at once. A read-modify-write empties the buffer first.
//   - Membarrier empties the buffers of all threads of the processes that are
//     registered for it.
//   - Futexes compare and go to sleep in one step, wake in the order of arrival,
//     and may wake without a reason. A sleeper that is stopped leaves the queue
//     and starts its wait again, with its old value.
//   - A killed process may do further steps or none: its death can be seen when one of
//     its threads has ended, while its other threads still run. The membarrier of a
//     reaper stops these threads.
//
// A step is mandatory or optional. Steps of the environment are optional: a kill, a spurious wake,
// the end of a context, a new call. The protocol must not rely on optional steps. The exploration
// fails if a state violates the invariant, or if a state can be reached from which no sequence of
// mandatory steps leads to a done state. The second condition finds lost wakes, deadlocks, and
// livelocks without a way out. A loop that a thread can leave is not an error.
package model
