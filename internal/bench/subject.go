//go:build linux

package bench

import (
	"context"
	"os"
	"strings"
	"time"
)

// LastToken is the value that tells the responder that no more tokens follow.
const LastToken = 1<<32 - 1

// RWLocker is the interface that readers and rw cells need. TryLock fails while anybody holds the lock.
type RWLocker interface {
	Locker
	RLock()
	RUnlock()
	TryLock() bool
	// ReadPairs takes and releases the lock for reading n times. It returns the number of holds in which the guarded
	// word was not 0. Nobody writes the word, so a correct lock gives 0.
	ReadPairs(n int, guarded *uint64) (torn int)
}

// A Subject is one implementation that cells measure. A worker opens it once for each thread. The opened value
// implements the interface that the scenario needs.
type Subject struct {
	By        string        // its origin: c, go, in-process or shmsync
	Prim      string        // the primitive
	Scenarios []string      // names of scenarios
	Brief     []string      // scenarios of a quick suite; all when nil
	Places    []string      // placements in which it makes sense; all when empty
	InProcess bool          // it works within one process only, so its cells run in one process
	C         bool          // the C helper runs it
	Hidden    bool          // runs only when named; for tests
	Spins     bool          // the time that its waiters spin can be set
	MaxN      int           // the most waiters that it can take; 0 for any number
	Env       []string      // added to the environment of its workers
	Startup   time.Duration // extra startup time of a victim of a crash cell, if it is long

	// Segment creates the memory for the subject before a repetition of the cell: a mappable file that workers
	// inherit as descriptor 4. If Segment is nil, the memory is a zeroed memfd.
	Segment func(*Cell) (*os.File, error)
	// Files creates further files that every worker of a cell inherits.
	Files func(*Cell) ([]*os.File, error)
	// Clean removes what a repetition left, other than its files.
	Clean func(segment *os.File)
	// Check returns an error that says why the subject cannot run here, or nil.
	Check func() error
	// Open returns the thread's view of the subject: a value with the interface that the scenario needs, such as
	// Pairer, Token, Locker, Successor or Crowd. Process 0 opens the views of all its threads before other processes
	// open one.
	Open func(w *Worker, thread int) (any, error)
}

// Name returns the name by which the subject is selected and shown, such as c:futex.
func (s *Subject) Name() string { return s.By + ":" + s.Prim }

// plainVariant is the variant of a subject whose name has no dash.
const plainVariant = "plain"

// Variant returns the part of the subject's name after the first dash.
func (s *Subject) Variant() string {
	if _, v, ok := strings.Cut(s.Prim, "-"); ok {
		return v
	}
	return plainVariant
}

// Locker is the interface that lock and crash cells need.
type Locker interface {
	Lock()
	Unlock()
}

// Pairer takes and releases a lock n times, and counts under the lock. The subject has the loop, so that the compiler
// can inline the calls as in a user's program.
type Pairer interface {
	Pairs(n int, counter *uint64)
}

// Token is one end of a two-way channel of values, which the two ends pass in turn. Await returns the value that the
// other end passed last.
type Token interface {
	Pass(v uint32)
	Await() uint32
}

// Successor is a Locker that needs more than Lock to become the owner after a death. Inherit does that, and returns
// when the caller owns the lock.
type Successor interface {
	Locker
	Inherit() (Succession, error)
}

// Succession has the two instants after a death at which something changes for its successor.
type Succession struct {
	Told  int64 // when the caller learned of the death; 0 if the subject does not report that separately
	Owned int64 // when the caller could use the data
}

// Crowd is the interface that waiters cells need. Block waits for Release, as the i-th waiter. Release may come
// first.
type Crowd interface {
	Block(i int)
	Release()
}

// Quitter is a crowd whose waits can be cancelled: BlockContext returns an error if ctx ends
// before Release.
type Quitter interface {
	Crowd
	BlockContext(ctx context.Context, i int) error
}

// Auditor is a crowd that can count the waiters whose wait succeeded.
type Auditor interface {
	Crowd
	Audit() (got int)
}

// Library is the origin of the subjects of this module.
const Library = "shmsync"
