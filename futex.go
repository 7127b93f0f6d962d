package shmsync

// Outcome says why a wait on a futex word returned. The caller always checks again whether it still has
// to wait, because wakes may be spurious.
type Outcome uint8

const (
	// Woken: a wake reached this waiter.
	Woken Outcome = iota
	// Changed: the word did not hold the expected value (EAGAIN).
	Changed
	// Interrupted: a signal handler ran (EINTR).
	Interrupted
	// TimedOut: the deadline passed (ETIMEDOUT).
	TimedOut
	// Failed: the kernel refused the call; the error says why.
	Failed
)

// String names the outcome.
func (o Outcome) String() string {
	switch o {
	case Woken:
		return "woken"
	case Changed:
		return "changed"
	case Interrupted:
		return "interrupted"
	case TimedOut:
		return "timed out"
	case Failed:
		return "failed"
	}
	return "invalid"
}

// MatchAny is the bitset that matches every wait and every wake.
const MatchAny uint32 = 0xffffffff
