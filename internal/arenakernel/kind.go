package arenakernel

import (
	"fmt"
	"sync"
)

// A Kind is the type of an object: four ASCII letters, the first in the lowest byte.
type Kind uint32

// KindOf returns the Kind with the four letters of s.
func KindOf(s string) Kind {
	if len(s) != 4 {
		panic("shmsync: a kind has four letters: " + s)
	}
	return Kind(s[0]) | Kind(s[1])<<8 | Kind(s[2])<<16 | Kind(s[3])<<24
}

func (k Kind) letters() [4]byte { return [4]byte{byte(k), byte(k >> 8), byte(k >> 16), byte(k >> 24)} }

// hasLetters reports whether k consists of four letters. No other number is a kind.
func (k Kind) hasLetters() bool {
	for _, c := range k.letters() {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// String returns the four letters of k, or a number if k does not consist of letters.
func (k Kind) String() string {
	if !k.hasLetters() {
		return fmt.Sprintf("kind %#x", uint32(k))
	}
	b := k.letters()
	return string(b[:])
}

// kindNames contains the names of the types of this library, by kind.
var kindNames = map[Kind]string{
	KindOf("MUTX"): "Mutex", KindOf("RWMX"): "RWMutex", KindOf("FAIR"): "FairMutex", KindOf("COHM"): "CohortMutex",
	KindOf("SPIN"): "SpinLock", KindOf("RWSP"): "RWSpinLock", KindOf("MULT"): "MultiLock", KindOf("COND"): "Cond",
	KindOf("SEMA"): "Semaphore", KindOf("SEQR"): "Sequencer", KindOf("EVNT"): "Event", KindOf("FUTX"): "Futex",
	KindOf("FUTR"): "Future", KindOf("WGRP"): "WaitGroup", KindOf("LTCH"): "Latch", KindOf("BARR"): "Barrier",
	KindOf("ONCE"): "Once", KindOf("QUEU"): "Queue", KindOf("SIGW"): "SignalWaker", KindOf("WAIT"): "Waitable",
	KindOf("SYNC"): "Synchronized", KindValue: "Value", KindBlock: "Block",
}

// KindName returns the name of the type of a kind, or "" if the kind is not of this library.
func KindName(k Kind) string { return kindNames[k] }

// KindPhrase returns a phrase for an object of a kind: "a Mutex", or "an object of kind ABCD".
func KindPhrase(k Kind) string {
	name := KindName(k)
	switch {
	case name == "":
		return "an object of kind " + k.String()
	case name[0] == 'E', name[0] == 'R':
		return "an " + name // an Event, an RWMutex
	}
	return "a " + name
}

// KindOps contains what a package that defines a kind of object provides for reapers and tools.
// Multiple goroutines and processes may call each function at the same time, with any bytes in the
// object. So each function must be idempotent and must not rely on the bytes. The object is not
// open. It may be deleted during a call, but its bytes are not reused before the function returns.
type KindOps struct {
	// The functions apply to objects of the kind Kind whose layout has the version Version, or to
	// every version if Version is 0. An object of another version counts as an object of an unknown
	// kind, because its bytes may have other meanings.
	Kind    Kind
	Version uint16
	// Repair recovers what belongs to the dead participant in the object: holds, requests,
	// reservations. It does so for the ID of that participant and for earlier IDs of the same slot.
	// No thread of that participant executes code any more, but its system calls may still write.
	// Repair is called again when [Arena.Gone] returns true for the participant. If the object
	// protects data, as a lock does, Repair must not pass the object on to the next waiter before
	// that second call.
	//
	// Repair returns true if this process has recovered all that it could find, and has woken the
	// waiters that may go on. A process may be unable to do that, because the arena has no room for
	// its slot record, or because it does not have what the kind needs, such as the rules of a
	// Waitable. Then Repair returns false, and all participants that have the object open check it.
	// The dead participant may have closed its handles and kept a hold. So the open bit of the dead
	// participant does not show whether these participants have to check. A false without need costs
	// only time.
	Repair func(a *Arena, o Object, dead ParticipantID) bool
	// Wake wakes, once, all waiters of the object whose wakes may have been lost because a
	// participant died.
	Wake func(a *Arena, o Object, owed Owed)
	// Complete completes the last change of the object, which a dead participant may have begun, if
	// the object records its changes. It reports whether that was possible. After it returns true,
	// no change of a dead participant can put a node on a queue any more.
	Complete func(a *Arena, o Object) bool
	// Check returns an error that describes the impossible states in the object's bytes.
	Check func(a *Arena, o Object) error
	// Inspect returns the state of the object: its holds, its waits, and which holds each wait is
	// for. The argument a may be the copy of an [Inspector], in which writes have no effect and
	// wakes wake no thread. For a kind without Inspect, tools show the waits that [Arena.WaitsOf]
	// finds.
	Inspect func(a *Arena, o Object) Inspection
	// RecordWords says how many bytes at the beginning of a slot record contain no user data. 0 means
	// all bytes of the record. Reports leave the other bytes out. If the object is not known, or was
	// made or deleted while the report was made, the report shows at most the header of the record.
	RecordWords uint64
	// UserData calls the function hide for each range of the body that contains user data. It
	// passes the offset of the range in the body and its length. Reports leave these bytes out. For
	// a kind without Inspect, the whole body is user data.
	UserData func(a *Arena, o Object, hide func(from Offset, n uint64))
}

// Owed says which wakes of an object may have been lost by a death.
type Owed uint8

const (
	// OwedAnnounced says that only waiters that have announced themselves in the words of the
	// object may have lost a wake.
	OwedAnnounced Owed = iota
	// OwedOne says that a living participant has recorded in its slot that it sleeps on a word of
	// the object. The words of the object may not show this waiter.
	OwedOne
	// OwedAll says that the dead participant, too, had recorded that it sleeps on a word of the
	// object. Its threads may still be in the futex queue of the kernel, so a wake for one waiter
	// could reach them and be lost.
	OwedAll
)

var kinds sync.Map // Kind to KindOps

// RegisterKind registers a kind of object with the reaper and the tools. It must be called from an
// init function. RegisterKind panics if the kind is already registered.
func RegisterKind(ops KindOps) {
	if _, twice := kinds.LoadOrStore(ops.Kind, ops); twice {
		panic("shmsync: kind registered twice: " + ops.Kind.String())
	}
}

// kindOps returns the functions for the given version of a kind. It returns false if this process
// does not know them.
func kindOps(k Kind, version uint16) (KindOps, bool) {
	v, ok := kinds.Load(k)
	if !ok || v.(KindOps).Version != version && v.(KindOps).Version != 0 {
		return KindOps{}, false
	}
	return v.(KindOps), true
}

// opsOf returns the functions for the kind and version of an object, as the function kindOps does.
func opsOf(o Object) (KindOps, bool) { return kindOps(o.Kind, o.Version) }

// Inspect returns the state of an object, as the function KindOps.Inspect of its kind reports it.
func (a *Arena) Inspect(o Object) Inspection {
	a.findWaitsOfCopy()
	if ops, ok := opsOf(o); ok && ops.Inspect != nil {
		return ops.Inspect(a, o)
	}
	return Inspection{Waits: a.WaitsOf(o)}
}

// describeMost is the maximum number of wait nodes in a description.
const describeMost = 8

// Describe returns the state of an object as one line of text, for the output of tests. It returns
// "" for a kind that this process does not know.
func (a *Arena) Describe(o Object) string {
	ops, ok := opsOf(o)
	if !ok || ops.Inspect == nil {
		return ""
	}
	i := ops.Inspect(a, o)
	s := i.State
	if i.Err != nil {
		s += fmt.Sprintf(", %v by %v", i.Err, i.Died)
	}
	for _, w := range i.Words {
		s += fmt.Sprintf(", %s %s (%#x)", w.Name, w.Text, w.Bits)
	}
	for _, h := range i.Holds {
		s += fmt.Sprintf("; %v has %s, %d %s", h.Owner, h.Mode, h.Count, h.Note)
	}
	nodes := 0
	a.EachNode(o.Offset, func(off Offset, n *Node) {
		if nodes++; nodes <= describeMost {
			s += fmt.Sprintf("; node %v of %v: %v, stamp %d, wanted %d, extra %#x", off, n.Owner(), n.Load(), n.Stamp().Load(), n.Wanted().Load(), n.Extra().Load())
		}
	})
	if nodes > describeMost {
		s += fmt.Sprintf("; and %d more", nodes-describeMost)
	}
	return s
}
