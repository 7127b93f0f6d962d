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
	calls  sync.RWMutex      // see BeginCall
	onEnd  sync.Map          // func() to be called when this opening ends, by key
	waits  map[Offset][]Wait // the waits that WaitsOf has found in a copy

	beforeWaits func() // an Inspector calls it before it fills waits
	now         int64  // in the copy of a dump, the time when the dump was made, CLOCK_MONOTONIC ns; 0: now
}

// membership is what the openings of one arena have in common. It represents the one participant
// that this process is in the arena.
type membership struct {
	core
	seg   *shm.Segment
	id    segmentID
	opens int // guarded by: attached
	// opening is true until the first opening has been admitted; then opened is closed.
	opening   bool // guarded by: attached
	opened    chan struct{}
	hook      atomic.Uint64 // the goroutine that runs OnFirst, 0 if none does
	ephemeral atomic.Bool   // the last Close removes the file

	mySlot  int
	caps    uint32
	lock    *os.File // its byte lock shows that this process is alive; nil without byte locks
	pin     []byte   // keeps the byte lock if the descriptor is closed by mistake; see pinLock
	robust  *shmsync.RobustList
	closing atomic.Bool // set under closingMu
	killed  atomic.Bool // set by Kill
	fenced  atomic.Bool // this process is a target of fences

	// The death watcher meets the goroutine that joins, and later the goroutine that leaves, at
	// these points. live: this process is live, or notLive says why not. repaired: what this
	// process held is taken back. watcherEnded: the death watcher no longer touches the arena.
	live, repaired, watcherEnded meeting
	notLive                      error // written before live

	closingMu  sync.Mutex
	background sync.WaitGroup // the other goroutines that must end before the memory is unmapped

	reapMu     sync.Mutex            // only one goroutine of this process reaps at a time
	reaps      map[int]*reapProgress // guarded by: reaping; by slot
	unfinished unfinished            // whether a reap has to go on
	endings    endings
	leftover   sharedSlotSet  // the slots whose reaps are unfinished
	crowded    int            // for a joiner: slots in which it found too few generations that no word names
	postponed  string         // for a joiner: why it could not renew used-up slots
	asked      []atomic.Int64 // when Dead last asked for the byte of a slot's participant, CLOCK_MONOTONIC ns
	deaths     deathLog
	events     events
	firstHook  *eventHook    // immutable after newMember; collects events for the opening that joins
	watched    atomic.Uint64 // how often the death watcher returned from its sleep; tests bound it
	slept      atomic.Uint64 // how often the death watcher slept, except while it was quiet

	copied bool // the Arena of an Inspector: a copy of the bytes that only the Inspector uses

	onClose     sync.Map      // func() to be called before the arena is unmapped, by key
	announceMap atomic.Uint32 // announce records in use, one bit each
}

// Self returns the ID of this process in the arena.
func (a *Arena) Self() ParticipantID { return a.self }

// Segment returns the memory that the arena is in.
func (a *Arena) Segment() *shm.Segment { return a.seg }

// Path returns the path of the arena's file, for messages.
func (a *Arena) Path() string { return a.label }

// Current reports whether n is a participant that is neither dead nor gone. It
// costs one load.
//
// A false answer synchronizes with the reap of n: no thread of n executes another instruction that
// stores to the arena. A system call that such a thread is in may write to the arena until
// [Arena.Gone] returns true, and a device may write even longer.
func (a *Arena) Current(n ParticipantID) bool { return a.isCurrent(n) }

// Live reports whether n is a participant that has neither died nor begun to leave.
func (a *Arena) Live(n ParticipantID) bool {
	i := n.Slot()
	if i < 1 || i > a.geo.slots {
		return false
	}
	w := a.slotState(i)
	return participantIn(i, w) == n && w.present() && w.phase() != phaseLeaving && !a.Dead(n)
}

// Fenced reports whether [shmsync.Fence] reaches this process by now. Only then may this process
// release a hold by a plain store.
func (a *Arena) Fenced() bool { return a.fenced.Load() }

// Size returns the size of the arena in bytes.
func (a *Arena) Size() int64 { return int64(a.geo.size) }

// Counted reports whether the arena's objects keep counters of their operations.
func (a *Arena) Counted() bool { return a.geo.counted }

// MaxParticipants returns how many processes can be in the arena at once.
func (a *Arena) MaxParticipants() int { return a.geo.slots }
