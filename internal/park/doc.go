// Package park makes goroutines wait for words of an arena.
//
// A [WaitList] is a wake word with a list of poller nodes. A releaser uses it to wake a waiter in
// any process. A [Queue] is this process's side of a wait list. It puts goroutines to sleep.
//
// Up to [DirectMax] waiting goroutines of a process each sleep in the kernel on their own thread,
// which is fastest. Further goroutines park on channels, and one goroutine of the process, the
// poller, sleeps for all of them on the doorbell of the participant's slot. A releaser wakes a
// sleeper in the kernel by FUTEX_WAKE. It wakes a poller by making a poller node ready and ringing
// the doorbell.
//
// For one object, no more goroutines sleep in the kernel than can run at a time. A goroutine that
// is parked in a [WaitNode] is woken directly by other goroutines of the same process, without the
// kernel and the poller; see [Queue.TellOwn].
//
// No waiter depends on the arrival of every wake, because the process checks the words that its
// goroutines wait for ten times a second. So a wake that is lost with a stopped or dead process
// only delays a waiter.
package park
