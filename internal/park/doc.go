// Package park makes goroutines wait for words of an arena.
//
// A [WaitList] is a wake word and the poller nodes beside it: a releaser uses it to wake a waiter
// in any process. A [Queue] is this process's side of a wait list: it puts goroutines to sleep.
//
// The first few goroutines of a process that wait each sleep in the kernel on their own
// thread, which is fastest. Beyond [DirectMax] they park on channels, and one goroutine of
// the process, the poller, sleeps for all of them on the doorbell of the participant's slot. A
// releaser serves both: the kernel's queue with FUTEX_WAKE, pollers by making a node ready and
// ringing the doorbell.
//
// For one object, no more goroutines sleep in the kernel than can run at a time. A
// goroutine of the same process wakes a goroutine that parks in a [WaitNode] directly, without
// the kernel and the poller: see [Queue.TellOwn].
//
// Nothing here depends on the arrival of every wake. Ten times a second the process checks
// the words that its goroutines wait for. So a wake that a stopped or dead process took
// along delays a waiter, but never strands it.
package park
