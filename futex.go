package shmsync

// Outcome says why a wait on a futex word came back. In every case the caller checks its
// own state again: wakes may be spurious.
type Outcome uint8

const (
	// Woken: a wake reached this sleeper.
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

// MatchAny is the bitset that every wait and wake matches.
const MatchAny uint32 = 0xffffffff
