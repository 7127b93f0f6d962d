package prims

import (
	"fmt"
	"slices"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// inspection collects what an Inspect function returns: the state of one object, for tools.
type inspection struct {
	arenakernel.Inspection
	a *arenakernel.Arena
	o arenakernel.Object
}

// inspect begins an inspection with the waits that the arena knows.
func inspect(a *arenakernel.Arena, o arenakernel.Object) *inspection {
	i := &inspection{a: a, o: o}
	i.Waits = slices.Clone(a.WaitsOf(o))
	return i
}

// unreadable returns the inspection of an object whose body is too small or damaged for its kind.
func unreadable(a *arenakernel.Arena, o arenakernel.Object, err error) arenakernel.Inspection {
	i := inspect(a, o)
	i.State, i.Err = "unreadable", err
	if err == nil {
		i.Err = &shmsync.Error{Op: "inspect", Object: objectName(o), Err: shmsync.ErrCorrupt, Detail: "its body is too small"}
	}
	return i.Inspection
}

// word adds a word of the object.
func (i *inspection) word(name string, bits uint64, format string, args ...any) {
	i.Words = append(i.Words, arenakernel.Word{Name: name, Bits: bits, Text: fmt.Sprintf(format, args...)})
}

// hold adds the hold h to i.Holds, and returns a slice that contains only the index of h. If h has no owner, hold
// adds nothing and returns nil.
func (i *inspection) hold(h arenakernel.Hold) (index []int) {
	if h.Owner == 0 {
		return nil
	}
	i.Holds = append(i.Holds, h)
	return []int{len(i.Holds) - 1}
}

// waits describes each wait that the function chosen selects, unless the field For of the wait is already set. It sets
// For to the text in the parameter what. It sets the field On to the parameter on: the indexes of the holds that must
// end before the wait can end.
func (i *inspection) waits(chosen func(w *arenakernel.Wait) bool, what string, on []int) {
	for k := range i.Waits {
		if w := &i.Waits[k]; w.For == "" && chosen(w) {
			w.For, w.On, w.Want = what, on, nil
		}
	}
}

// waitsFor does what the method waits does, for the waits in the queues of the object. The text in the parameter what
// explains the field Want of these waits.
func (i *inspection) waitsFor(what string, on []int) {
	for k := range i.Waits {
		if w := &i.Waits[k]; w.For == "" && inQueue(w) {
			w.For, w.On = what, on
		}
	}
}

// waitsOn returns a function that selects the waits on one word: threads that sleep on the word, and goroutines that
// park. The argument word is the offset of the word. The argument poller is the offset of the head of the list of
// poller nodes, by which a releaser finds the parked goroutines.
func waitsOn(word, poller arenakernel.Offset) func(w *arenakernel.Wait) bool {
	return func(w *arenakernel.Wait) bool {
		return w.Node == 0 && w.At == word || w.Node != 0 && w.Want == nil && w.At == poller
	}
}

// inQueue reports whether w is in a queue of the object.
func inQueue(w *arenakernel.Wait) bool { return w.Want != nil }

// lost records that no process can lock or use the object any more, and the reason.
func (i *inspection) lost(err error, died arenakernel.ParticipantID) { i.Err, i.Died = err, died }

// owner adds the owner word w of a lock. If a process holds the lock, owner adds that hold and returns its index.
func (i *inspection) owner(w ownerWord, died arenakernel.ParticipantID) (on []int) {
	return i.ownerState(uint64(w), w, died)
}

// ownerState does what the method owner does. The argument bits is the owner word as it is in memory, and w is the
// state that it describes.
func (i *inspection) ownerState(bits uint64, w ownerWord, died arenakernel.ParticipantID) (on []int) {
	i.word("owner", bits, "%v", w)
	switch {
	case !w.valid():
		i.lost(shmsync.ErrCorrupt, 0)
	case w == ownerNotRecoverable:
		i.lost(shmsync.ErrNotRecoverable, died)
	case w.kind() == kindOwnerDead:
		i.lost(shmsync.ErrOwnerDead, w.participant())
	default:
		return i.hold(ownerHold(w))
	}
	return nil
}

// date adds to the given holds the time when they began, if the counters c have recorded that time.
func (i *inspection) date(holds []int, c *countWords) {
	for _, h := range holds {
		i.Holds[h].Since = c.began()
	}
}

// ownerHold returns the hold that an owner word describes. If the lock is not held, the owner of
// the hold is 0.
func ownerHold(w ownerWord) arenakernel.Hold {
	h := arenakernel.Hold{Owner: w.participant(), Mode: arenakernel.HoldExclusive}
	switch w.kind() {
	case kindBiased:
		h.Note = "biased"
	case kindRecovering:
		h.Mode = arenakernel.HoldRecovering
	case kindReserved:
		h.Mode = arenakernel.HoldReserved
	}
	if !w.valid() || !w.held() && w.kind() != kindReserved {
		h.Owner = 0
	}
	return h
}

// wakeWord adds a wake word.
func (i *inspection) wakeWord(name string, v uint32) {
	text := "nobody announced"
	if v&1 != 0 {
		text = "somebody announced"
	}
	i.word(name, uint64(v), "%s, sequence %d", text, v>>1)
}

// eventcount adds the counters of e, and how long its waiters spin.
func (i *inspection) eventcount(e *eventcount) {
	i.Counts, i.Spin = e.counts.tell(), spinText(e.words.spin.Load())
}

func spinText(field uint32) string {
	switch d := spinOf(field); {
	case d == 0:
		return "adaptive"
	case d < 0:
		return "none"
	default:
		return d.String()
	}
}

// enough sets the field Any of each wait whose field For equals the parameter what. Such a wait can end as soon as
// some of the holds in its field On end.
func (i *inspection) enough(what string) {
	for k := range i.Waits {
		if i.Waits[k].For == what {
			i.Waits[k].Any = true
		}
	}
}
