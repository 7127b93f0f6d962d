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
	// ReadPairs takes and releases the lock for reading n times, and gives how
	// often what it guards was not what it was at first.
	ReadPairs(n int, guarded *uint64) (torn int)
}

// A subject is one implementation that cells measure. It names the scenarios
// it takes part in; a worker opens it once per thread and the value it gets
// implements what the scenario asks for.
type Subject struct {
	By        string        // where it comes from: c, go, in-process or shmsync
	Prim      string        // what it is
	Scenarios []string      // names of scenarios
	Brief     []string      // those that a quick suite looks at; all when nil
	Places    []string      // placements it makes sense in; all when empty
	InProcess bool          // cannot span processes: its cells run in one
	C         bool          // the C helper runs it
	Hidden    bool          // runs only when named, for tests
	Spins     bool          // how long its waiters spin can be set
	MaxN      int           // the most waiters that it can take; 0 for any number
	Env       []string      // added to the environment of its workers
	Startup   time.Duration // that a victim of a crash cell needs, if it is much

	// Segment makes what the subject lives in during a repetition of the cell,
	// a mappable file that workers inherit as descriptor 4; a zeroed memfd when
	// nil.
	Segment func(*Cell) (*os.File, error)
	// Files makes the descriptors that every worker of a cell inherits.
	Files func(*Cell) ([]*os.File, error)
	// Clean takes away what a repetition left beside its files.
	Clean func(segment *os.File)
	// Check says why the subject cannot run here; nil where it can.
	Check func() error
	// Open gives thread's view of the subject: a pairer, token, locker, successor
	// or crowd. Process 0 opens all its threads before any other opens one.
	Open func(w *Worker, thread int) (any, error)
}

// Name is how the subject is selected and shown, as in c:futex.
func (s *Subject) Name() string { return s.By + ":" + s.Prim }

// plainVariant is what a subject is called whose name has no dash.
const plainVariant = "plain"

// Variant is what follows the first dash of what the subject is.
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

// Pairer takes and releases a lock n times, counting under it: a loop of the
// subject's own, so that calls may be inlined as in a user's program.
type Pairer interface {
	Pairs(n int, counter *uint64)
}

// Token is one end of a two-way channel of values. Await returns the value
// that the other end passed last; values are passed in turn.
type Token interface {
	Pass(v uint32)
	Await() uint32
}

// Successor is a locker that has more to do than Lock to become owner after a
// death. Inherit returns when the caller owns the lock, and the instant from
// which it has.
type Successor interface {
	Locker
	Inherit() (owned int64, err error)
}

// Crowd is what waiters cells need: Block, the i-th, waits for Release, which
// may come first.
type Crowd interface {
	Block(i int)
	Release()
}

// Quitter is a crowd that can be left: BlockContext ends with an error when ctx
// ends before Release.
type Quitter interface {
	Crowd
	BlockContext(ctx context.Context, i int) error
}

// Auditor is a crowd that counts the waiters that got what they waited for.
type Auditor interface {
	Crowd
	Audit() (got int)
}

// Library is the maker of the subjects that are this module's.
const Library = "shmsync"
