// Package park makes goroutines wait for words of an arena.
//
// A [WaitList] is a wake word and the poller nodes beside it: what a releaser needs to
// wake somebody, in whatever process. A [Queue] is this process's side of a
// line: it puts goroutines to sleep.
//
// The first few goroutines of a process that wait each sleep in the kernel on
// their own thread, which is quickest. Beyond [DirectMax] they park on channels
// and one goroutine of the process, the poller, sleeps for all of them on the
// doorbell of the participant's slot. A releaser serves both: the kernel's
// queue with FUTEX_WAKE, pollers by making a node ready and ringing the doorbell.
//
// For one object, no more goroutines sleep in the kernel than can run at a time. One that
// parks in a [WaitNode] is woken by a goroutine of its own process directly, without the
// kernel and the poller: see [Queue.TellOwn].
//
// Nothing here depends on every wake arriving. Whoever waits is looked after:
// ten times a second the process looks at the words that its goroutines wait
// for, so a wake that a stopped or dead process took along delays, but never
// strands.
package park
