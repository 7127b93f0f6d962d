// Package park makes goroutines wait for words of an arena.
//
// A [WaitList] is a wake word with a list of poller nodes. A releaser uses it to wake a waiter in
// any process. A [Queue] is the part of a wait list in this process, where its goroutines sleep.
//
// Up to [DirectMax] waiting goroutines of a process sleep in the kernel, each on its own thread,
// which is the fastest way to wait. Further goroutines park on channels. One goroutine of the
// process, the poller, sleeps for all of them on the doorbell, a futex word in the participant's
// slot. A releaser wakes a thread that sleeps in the kernel by FUTEX_WAKE. It wakes a poller by
// marking a poller node ready and ringing the doorbell.
//
// For one object, no more goroutines sleep in the kernel than can run at the same time. A goroutine
// that is parked in a [WaitNode] is woken directly by other goroutines of the same process, without
// the kernel and the poller; see [Queue.TellOwn].
//
// A waiter does not depend on any single wake, because ten times a second the process
// checks the words that its goroutines wait for. If a process dies or stops before it has sent a
// wake, the waiter is only delayed.
package park
