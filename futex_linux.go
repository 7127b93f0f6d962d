package shmsync

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Wait sleeps while *addr holds val, until a wake, or until deadline, an
// absolute CLOCK_MONOTONIC time in nanoseconds as [Monotonic] gives; 0 means
// none. addr must lie in memory mapped shared for a wake from another process
// to arrive. The error is non-nil only with [Failed].
//
// The goroutine keeps its thread while it sleeps, but not its P: the garbage
// collector and other goroutines go on.
func Wait(addr *uint32, val uint32, deadline int64) (Outcome, error) {
	return WaitBitset(addr, val, MatchAny, deadline)
}

// WaitBitset is Wait for wakes whose bitset shares a bit with bitset, which
// must not be 0.
func WaitBitset(addr *uint32, val, bitset uint32, deadline int64) (Outcome, error) {
	return classify("futex_wait", futexWait(addr, val, bitset, deadline))
}

// Wake wakes up to n sleepers on addr, in the order in which they went to
// sleep, and reports how many it woke. It does not block.
func Wake(addr *uint32, n int) int {
	return WakeBitset(addr, n, MatchAny)
}

// WakeBitset is Wake for those sleepers whose bitset shares a bit with bitset.
func WakeBitset(addr *uint32, n int, bitset uint32) int {
	woken, errno := futexWakeSome(addr, n, bitset)
	if errno != 0 {
		// EFAULT: the page was unmapped under us; nobody can sleep there.
		return 0
	}
	return woken
}

// Requeue wakes up to wake sleepers on addr and moves up to move of the rest
// to target, provided that *addr still holds val; otherwise it does nothing and
// reports [Changed]. n counts the woken and the moved.
func Requeue(addr *uint32, val uint32, wake int, target *uint32, move int) (n int, o Outcome, err error) {
	n, errno := futexRequeue(addr, val, wake, target, move)
	if errno != 0 {
		o, err = classify("futex_requeue", errno)
		return 0, o, err
	}
	return n, Woken, nil
}

// WaitV sleeps while every word of ws holds its value, until one of them is
// woken or deadline passes. With [Woken], index is that of one woken entry:
// others may have been woken as well, so the caller examines every entry
// again. At most [WaitVMax] entries.
func WaitV(ws []WaitVEntry, deadline int64) (index int, o Outcome, err error) {
	index, errno := futexWaitV(ws, deadline)
	if errno == 0 {
		return index, Woken, nil
	}
	o, err = classify("futex_waitv", errno)
	return -1, o, err
}

// classify sorts what the kernel answers to a wait. It is the one place that
// knows which errnos are part of the protocol.
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

// The runtime's monotonic clock is CLOCK_MONOTONIC read through the vDSO, with
// an origin of its own; the system call that shares the origin costs ten times
// as much, so the distance is taken once.
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

// Monotonic reads CLOCK_MONOTONIC in nanoseconds. All processes of one boot
// (and one time namespace) share it.
func Monotonic() int64 {
	return clockOffset + int64(time.Since(clockBase))
}

// MonotonicOf converts a time that carries a monotonic reading, such as a
// context's deadline, to CLOCK_MONOTONIC nanoseconds.
func MonotonicOf(t time.Time) int64 {
	return clockOffset + int64(t.Sub(clockBase))
}
