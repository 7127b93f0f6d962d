//go:build linux

package bench

import (
	"context"
	"os"
	"strings"
	"time"
)

// LastToken tells the responder that no more tokens follow.
const LastToken = 1<<32 - 1

// RWLocker is what readers and rw cells need. TryLock fails while anybody
// holds the lock.
type RWLocker interface {
	Locker
	RLock()
	RUnlock()
	TryLock() bool
	// ReadPairs takes and releases the lock for reading n times, and returns how often the
	// guarded value had changed.
	ReadPairs(n int, guarded *uint64) (torn int)
}

// A Subject is one implementation that cells measure. It names the scenarios in which it takes
// part. A worker opens it once for each thread, and the opened value implements the interface
// that the scenario needs.
type Subject struct {
	By        string        // its origin: c, go, in-process or shmsync
	Prim      string        // the primitive
	Scenarios []string      // names of scenarios
	Brief     []string      // scenarios of a quick suite; all when nil
	Places    []string      // placements in which it makes sense; all when empty
	InProcess bool          // it cannot span processes: its cells run in one process
	C         bool          // the C helper runs it
	Hidden    bool          // runs only when named; for tests
	Spins     bool          // the time that its waiters spin can be set
	MaxN      int           // the most waiters that it can take; 0 for any number
	Env       []string      // added to the environment of its workers
	Startup   time.Duration // extra startup time of a victim of a crash cell, if it is long

	// Segment makes the memory for the subject during a repetition of the cell: a mappable file
	// that workers inherit as descriptor 4. If Segment is nil, the memory is a zeroed memfd.
	Segment func(*Cell) (*os.File, error)
	// Files makes the descriptors that every worker of a cell inherits.
	Files func(*Cell) ([]*os.File, error)
	// Clean removes what a repetition left apart from its files.
	Clean func(segment *os.File)
	// Check says why the subject cannot run here; nil if it can.
	Check func() error
	// Open returns the thread's view of the subject: a pairer, token, locker, successor or crowd.
	// Process 0 opens the views of all its threads before other processes open one.
	Open func(w *Worker, thread int) (any, error)
}

// Name is the name by which the subject is selected and shown, as in c:futex.
func (s *Subject) Name() string { return s.By + ":" + s.Prim }

// plainVariant is the variant of a subject whose name has no dash.
const plainVariant = "plain"

// Variant is the part of the subject's name after the first dash.
func (s *Subject) Variant() string {
	if _, v, ok := strings.Cut(s.Prim, "-"); ok {
		return v
	}
	return plainVariant
}

// Locker is what lock and crash cells need.
type Locker interface {
	Lock()
	Unlock()
}

// Pairer takes and releases a lock n times, and counts under the lock. The loop belongs to the
// subject, so that calls may be inlined as in a user's program.
type Pairer interface {
	Pairs(n int, counter *uint64)
}

// Token is one end of a two-way channel of values. Await returns the value
// that the other end passed last; values are passed in turn.
type Token interface {
	Pass(v uint32)
	Await() uint32
}

// Successor is a locker that becomes owner after a death by more than Lock. Inherit returns when
// the caller owns the lock.
type Successor interface {
	Locker
	Inherit() (Succession, error)
}

// Succession has the instants of both stages of a death, as its successor sees them.
type Succession struct {
	Told  int64 // when the caller was told of the death; 0 if the locker has no such stage
	Owned int64 // since when the caller may use the data
}

// Crowd is what waiters cells need: Block, with i for the i-th waiter, waits for Release, which
// may come first.
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

// Auditor is a crowd that counts the waiters that got what they waited for.
type Auditor interface {
	Crowd
	Audit() (got int)
}

// Library is the origin of the subjects of this module.
const Library = "shmsync"
