package arenakernel

import (
	"os"
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/shm"
)

// An Arena is one opening of a shared arena by this process. All openings of the same arena in a
// process share one membership. Each opening is closed separately: Close ends the handles that were
// opened through this opening, and no other handles.
//
// Multiple goroutines may call methods on an Arena simultaneously. After Close, a method that
// returns an error returns one that Is [shmsync.ErrClosed]. A method that does not return an error
// panics, or still works while this process has another opening.
type Arena struct {
	*membership
	ending atomic.Bool
	over   atomic.Bool
	calls  sync.RWMutex // see BeginCall
	onEnd  sync.Map     // functions to call when this opening is closed, by their key; see OnEnd
	// Close calls beforeClose, if it is not nil, before Close changes anything; see BeforeClose.
	beforeClose atomic.Pointer[func()]
	waits       map[Offset][]Wait // the waits that WaitsOf found in a copy of the arena

	beforeWaits func() // called by an Inspector before it fills waits
	now         int64  // in a copy from a dump: when the dump was made, CLOCK_MONOTONIC ns; otherwise 0
}

// membership is the state that all openings of one arena in this process share. For other
// processes, all these openings together are one participant.
type membership struct {
	core
	seg    *shm.Segment
	id     segmentID
	info   os.FileInfo // of the file, when this process joined
	onDisk bool        // the file may survive a reboot
	home   workingDir
	origin origin // of this process, when it joined
	opens  int    // guarded by: attached
	// The field opening is true until the first Open of this process has been admitted to the
	// arena, or has failed. Then opening becomes false, and the channel opened is closed.
	opening   bool // guarded by: attached
	opened    chan struct{}
	hook      atomic.Uint64 // the number of the goroutine that runs OnFirst, or 0
	ephemeral atomic.Bool   // the last Close removes the file

	mySlot  int
	caps    uint32
	lock    *os.File       // holds the byte lock that shows that this process is alive; nil without byte locks
	pin     []byte         // keeps the byte lock even if the descriptor is closed by mistake; see pinLock
	watcher *watcherThread // the thread that becomes the death watcher
	robust  *shmsync.RobustList
	closing atomic.Bool // set under closingMu
	killed  atomic.Bool // set by Kill
	fenced  atomic.Bool // a call of shmsync.Fence in another process reaches the threads of this process

	// Points at which the death watcher and the goroutine that joins or leaves the arena wait for each other:
	//   live: this process is live, or notLive says why it is not
	//   repaired: everything that this process held has been recovered
	//   watcherEnded: the death watcher no longer accesses the arena
	live, repaired, watcherEnded meeting
	notLive                      error // written before the point live

	closingMu  sync.Mutex
	background sync.WaitGroup // the other goroutines that must end before the arena is unmapped

	reapMu     sync.Mutex            // held by the goroutine of this process that reaps
	reaps      map[int]*reapProgress // guarded by: reapMu; by slot
	unfinished unfinished            // whether a reap has to be continued
	endings    endings
	leftover   sharedSlotSet  // the slots whose reaps are unfinished
	crowded    int            // while this process joins: how many slots have too few unused IDs in a row for a window
	lockErr    error          // while this process joins: why the kernel refused a byte lock that no process has
	postponed  string         // while this process joins: why it could not renew slots
	asked      []atomic.Int64 // when the method Dead last checked the byte lock, by slot, CLOCK_MONOTONIC ns
	deaths     deathLog
	deadNodes  deadNodes
	events     events
	firstHook  *eventHook    // collects events for the first opening while it joins; immutable after newMember
	watched    atomic.Uint64 // how often the death watcher has returned from its sleep; tests check that it stays small
	slept      atomic.Uint64 // how often the death watcher slept; sleeps in [quietWatch.watch] do not count

	copied bool // the Arena is an Inspector's private copy of the bytes

	onClose     sync.Map      // functions to call before the arena is unmapped, by their key; see OnClose
	announceMap atomic.Uint32 // announce records in use, one bit each
}

// Self returns the ID of this process in the arena.
func (a *Arena) Self() ParticipantID { return a.self }

// Segment returns the memory that the arena is in.
func (a *Arena) Segment() *shm.Segment { return a.seg }

// Path returns the path of the arena's file, for messages.
func (a *Arena) Path() string { return a.label }

// Current reports whether n is a participant that has neither died nor left. It costs one load.
//
// A call that returns false synchronizes with the reap of n: from then on, no thread of n executes
// an instruction that stores to the arena. A system call of such a thread may still write to the
// arena until [Arena.Gone] returns true, and a device may write for even longer.
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

// Fenced reports whether a call of [shmsync.Fence] by another process reaches the threads of this
// process already. Only then may this process release a lock by a plain store.
func (a *Arena) Fenced() bool { return a.fenced.Load() }

// Size returns the size of the arena in bytes.
func (a *Arena) Size() int64 { return int64(a.geo.size) }

// Counted reports whether the objects of the arena count their operations.
func (a *Arena) Counted() bool { return a.geo.counted }

// MaxParticipants returns how many processes can be in the arena at once.
func (a *Arena) MaxParticipants() int { return a.geo.slots }
