package arenakernel

import (
	"os"
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/shm"
)

// Arena is one opening of a shared arena by this process. All openings of the
// process share one membership. Each opening is closed separately: its Close ends
// the handles that were opened through it, and no others.
//
// Many goroutines may call the methods at once. After Close, a method that can return an
// error returns one that Is [shmsync.ErrClosed]. Methods that cannot return an error panic,
// or still work while this process has another opening.
type Arena struct {
	*membership
	ending atomic.Bool
	over   atomic.Bool
	onEnd  sync.Map          // func() to be called when this opening ends, by key
	waits  map[Offset][]Wait // what WaitsOf has found in a copy
}

// membership is what the openings of one arena share: the participant that this
// process is in it.
type membership struct {
	core
	seg   *shm.Segment
	id    segmentID
	opens int // guarded by: attached
	// opening says that the first opening is not admitted yet; opened is closed after that.
	opening   bool // guarded by: attached
	opened    chan struct{}
	ephemeral atomic.Bool // the last Close removes the file

	mySlot  int
	caps    uint32
	lock    *os.File // its byte lock says that we are alive; nil where there is none
	pin     []byte   // keeps the byte lock if the descriptor is closed by mistake; see pinLock
	robust  *shmsync.RobustList
	closing atomic.Bool // set under closingMu
	killed  atomic.Bool // by Kill
	fenced  atomic.Bool // this process is a target of fences

	// The death watcher meets the goroutine that joins, and later the one that leaves: live means
	// that this process is live, or notLive says why not; repaired that its traces are removed;
	// watcherEnded that the death watcher touches the arena no more.
	live, repaired, watcherEnded meeting
	notLive                      error // written before live

	closingMu  sync.Mutex
	background sync.WaitGroup // whatever else must end before the memory is unmapped

	reapMu     sync.Mutex            // one goroutine of this process reaps at a time
	reaps      map[int]*reapProgress // guarded by: reaping; by slot
	unfinished atomic.Bool           // a reap has to be gone on with
	endings    endings
	leftover   sharedSlotSet  // of the slots where a participant could not be marked
	crowded    int            // of a joiner: slots for which it found too few generations that no word names
	postponed  string         // of a joiner: why it could not renew slots that are used up
	asked      []atomic.Int64 // when Dead last asked for the byte of a slot's participant, CLOCK_MONOTONIC ns
	deaths     deathLog
	watched    atomic.Uint64 // how often the death watcher had to come back from its sleep; tests bound it

	copied bool // an Inspector's: a copy that no other code sees

	onClose     sync.Map      // func() to be called before the arena is unmapped, by key
	announceMap atomic.Uint32 // announce records in use, a bit each
}

// Self is the ID of this process in the arena.
func (a *Arena) Self() ParticipantID { return a.self }

// Segment is the memory under the arena.
func (a *Arena) Segment() *shm.Segment { return a.seg }

// Path names the arena to people: its file.
func (a *Arena) Path() string { return a.label }

// Current reports whether n is a participant that is neither dead nor gone. It
// costs one load.
//
// A false answer synchronizes with the reap of n: no thread of n executes an
// instruction that stores to the arena any more. A system call that such a thread is
// in may go on to write there, until [Arena.Gone] is true, and a device longer still.
func (a *Arena) Current(n ParticipantID) bool { return a.isCurrent(n) }

// Fenced reports whether this process is a target of [shmsync.Fence] by now,
// which is what a hold that is released by a plain store needs.
func (a *Arena) Fenced() bool { return a.fenced.Load() }

// Size is the arena's size in bytes.
func (a *Arena) Size() int64 { return int64(a.geo.size) }

// Counted reports whether the arena's objects count what is done with them.
func (a *Arena) Counted() bool { return a.geo.counted }

// MaxParticipants is the most processes that can be in the arena at once.
func (a *Arena) MaxParticipants() int { return a.geo.slots }
