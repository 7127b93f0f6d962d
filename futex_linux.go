package shmsync

import (
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Wait sleeps while *addr is val, until a wake or until deadline. deadline is a time of
// CLOCK_MONOTONIC in nanoseconds, as [Monotonic] returns it; 0 means no deadline. A wake from
// another process arrives only if addr is in memory that is mapped shared. The error is non-nil
// only with [Failed].
//
// The goroutine keeps its thread while it sleeps, but not its P, so the garbage collector and other
// goroutines go on.
func Wait(addr *uint32, val uint32, deadline int64) (Outcome, error) {
	return WaitBitset(addr, val, MatchAny, deadline)
}

// WaitBitset is Wait, but a wake ends the wait only if the bitset of the wake has a bit in common with bitset.
// bitset must not be 0.
func WaitBitset(addr *uint32, val, bitset uint32, deadline int64) (Outcome, error) {
	return classify("futex_wait", futexWait(addr, val, bitset, deadline))
}

// Wake wakes up to n sleepers on addr, in the order in which they went to sleep, and returns how
// many it woke. It does not block. If n is 0 or less, it wakes nobody.
func Wake(addr *uint32, n int) int {
	return WakeBitset(addr, n, MatchAny)
}

// WakeBitset is Wake, but wakes only sleepers whose bitset shares a bit with bitset.
func WakeBitset(addr *uint32, n int, bitset uint32) int {
	if n < 1 {
		return 0 // the kernel would wake one sleeper
	}
	woken, errno := futexWakeSome(addr, futexCount(n), bitset)
	if errno != 0 {
		// The errno is EFAULT if the page has been unmapped. Then nobody can sleep there.
		return 0
	}
	return woken
}

// Requeue wakes sleepers on addr, and moves further sleepers from addr to the word target. The parameters wake and
// move limit the numbers of these sleepers; a negative limit counts as 0. If *addr is not val any more, Requeue does
// nothing and returns [Changed]. n is the number of sleepers that were woken or moved.
func Requeue(addr *uint32, val uint32, wake int, target *uint32, move int) (n int, o Outcome, err error) {
	n, errno := futexRequeue(addr, val, futexCount(wake), target, futexCount(move))
	if errno != 0 {
		o, err = classify("futex_requeue", errno)
		return 0, o, err
	}
	return n, Woken, nil
}

// futexCount returns n as a count for the kernel, which takes counts of 31 bits.
func futexCount(n int) int { return min(max(n, 0), math.MaxInt32) }

// WaitV sleeps while every word of ws has its expected value, until a wake on one of the words or until
// deadline. With [Woken], ws[index] is an entry that was woken. Further entries may have been woken as
// well, so the caller examines every entry again. ws has at most [WaitVMax] entries.
//
// If a filter for system calls forbids the call, the error Is [ErrNotSupported], and [FeatureWaitV] counts as absent
// from then on.
func WaitV(ws []WaitVEntry, deadline int64) (index int, o Outcome, err error) {
	index, errno := futexWaitV(ws, deadline)
	if errno == 0 {
		return index, Woken, nil
	}
	if errno == unix.EPERM || errno == unix.ENOSYS {
		err := notSupported("futex_waitv", errno)
		FeatureWaitV.stopped(err)
		return -1, Failed, err
	}
	o, err = classify("futex_waitv", errno)
	return -1, o, err
}

// classify turns the errno of a wait into an Outcome. It returns an error only with Failed.
func classify(op string, errno unix.Errno) (Outcome, error) {
	switch errno {
	case 0:
		return Woken, nil
	case unix.EAGAIN:
		return Changed, nil
	case unix.EINTR:
		return Interrupted, nil
	case unix.ETIMEDOUT:
		return TimedOut, nil
	}
	return Failed, os.NewSyscallError(op, errno)
}

// The monotonic clock of the Go runtime is CLOCK_MONOTONIC with another origin. The runtime reads it through the vDSO.
// A system call that reads CLOCK_MONOTONIC costs ten times as much. So the difference between the two origins is
// measured once, and then added to the time of the runtime.
var (
	clockBase   = time.Now()
	clockOffset = monotonicOffset()
)

func monotonicOffset() int64 {
	best, offset := int64(1<<62), int64(0)
	for range 8 {
		before := time.Since(clockBase)
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return 0
		}
		after := time.Since(clockBase)
		if d := int64(after - before); d < best {
			best = d
			offset = ts.Nano() - int64(before) - d/2
		}
	}
	return offset
}

// Monotonic returns the time of CLOCK_MONOTONIC in nanoseconds. All processes of one boot (and one
// time namespace) share this clock.
func Monotonic() int64 {
	return clockOffset + int64(time.Since(clockBase))
}

// MonotonicOf converts a time with a monotonic reading, such as the deadline of a context, to nanoseconds of
// CLOCK_MONOTONIC. A time that is too far in the future becomes the largest int64, which is 292 years after the boot.
// The result is never 0, because 0 means no deadline.
func MonotonicOf(t time.Time) int64 {
	d := min(int64(t.Sub(clockBase)), math.MaxInt64-clockOffset)
	if d == -clockOffset {
		return 1
	}
	return clockOffset + d
}
