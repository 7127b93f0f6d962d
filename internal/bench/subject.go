//go:build linux

package bench

import (
	"context"
	"os"
	"strings"
	"time"
)

// LastToken is the token after which no token follows. A token is a value that two threads pass back and forth.
const LastToken = 1<<32 - 1

// RWLocker is the interface that the scenarios "readers" and "rw" need of their subject. TryLock fails while anybody
// holds the lock.
type RWLocker interface {
	Locker
	RLock()
	RUnlock()
	TryLock() bool
	// ReadPairs takes the lock for reading, reads the guarded word and releases the lock, n times. It returns how often
	// the word was not 0. Nobody writes the word, so with a correct lock this is 0.
	ReadPairs(n int, guarded *uint64) (torn int)
}

// A Subject is one implementation of a primitive that is measured, such as a mutex of pthreads. A worker opens the
// subject once for each thread. The opened value implements the interface that the scenario needs.
type Subject struct {
	By        string        // its origin: c, go, in-process or shmsync
	Prim      string        // the primitive
	Scenarios []string      // names of the scenarios that can measure it
	Brief     []string      // scenarios of a quick suite that measure it; nil: all of its scenarios
	Places    []string      // placements in which it is measured; empty: all
	InProcess bool          // it works within one process only, so its cells run in one process
	C         bool          // the C helper runs it
	Hidden    bool          // it is measured only if the user names it; for tests
	Spins     bool          // the user can set how long its waiters spin
	MaxN      int           // the most waiters that it can take; 0 for any number
	Env       []string      // added to the environment of its workers
	Startup   time.Duration // extra startup time of a victim, the process that a crash cell kills

	// Segment creates the memory for the subject before a repetition of the cell. The result is a file that can be
	// mapped, which workers inherit as descriptor 4. If Segment is nil, the memory is a zeroed memfd.
	Segment func(*Cell) (*os.File, error)
	// Files creates further files that every worker of a cell inherits.
	Files func(*Cell) ([]*os.File, error)
	// Clean removes what a repetition left on the host, except for the files that Segment and Files created.
	Clean func(segment *os.File)
	// Check returns an error that says why the subject cannot run here, or nil.
	Check func() error
	// Open returns the subject as one thread uses it: a value with the interface that the scenario needs, such as
	// Pairer, Token, Locker, Successor or Crowd. Process 0 opens the subject for all its threads before other processes
	// open it.
	Open func(w *Worker, thread int) (any, error)
}

// Name returns the name by which the subject is selected and shown, such as c:futex.
func (s *Subject) Name() string { return s.By + ":" + s.Prim }

// plainVariant is the variant of a subject whose name has no variant, that is, no dash.
const plainVariant = "plain"

// Variant returns the part of the subject's name after the first dash, such as spin1000 for c:futex-spin1000.
func (s *Subject) Variant() string {
	if _, v, ok := strings.Cut(s.Prim, "-"); ok {
		return v
	}
	return plainVariant
}

// Locker is the interface that the scenarios "lock" and "crash" need of their subject.
type Locker interface {
	Lock()
	Unlock()
}

// Pairer takes and releases a lock n times. It increments the counter while it holds the lock. The loop is a part of
// the subject, so that the compiler can inline the calls as in a user's program.
type Pairer interface {
	Pairs(n int, counter *uint64)
}

// Token is one end of a measurement in which two threads pass values back and forth. Await returns the value that
// the other thread passed last.
type Token interface {
	Pass(v uint32)
	Await() uint32
}

// Successor is a Locker for which Lock alone does not make the caller the owner if the previous owner died. Inherit
// does all steps that are needed, and returns when the caller owns the lock.
type Successor interface {
	Locker
	Inherit() (Succession, error)
}

// Succession has two instants after the death of an owner. The process that takes over the lock measures them.
type Succession struct {
	Told  int64 // when the caller learned of the death; 0 if the subject gives only one instant
	Owned int64 // when the caller could use the data
}

// Crowd is the interface that the scenario "waiters" needs of its subject. Block blocks waiter i until Release is
// called. It returns at once if Release has been called already.
type Crowd interface {
	Block(i int)
	Release()
}

// Quitter is a Crowd whose waits can be cancelled. BlockContext returns an error if ctx ends before Release is called.
type Quitter interface {
	Crowd
	BlockContext(ctx context.Context, i int) error
}

// Auditor is a Crowd that can count the waiters whose wait succeeded, that is, was not cancelled.
type Auditor interface {
	Crowd
	Audit() (got int)
}

// Library is the first part of the names of this module's subjects.
const Library = "shmsync"
