package arena

import (
	"os"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Inspector examines an arena from outside. It is no participant: it takes no slot, writes nothing and
// wakes no process. So it works even if the participants of the arena hang, or if the bytes of the
// arena are damaged. It copies the bytes that it reads, and works on this copy until Refresh; see
// [shm.Image].
//
// Only one goroutine at a time may use an Inspector.
type Inspector arenakernel.Inspector

// kernel returns the Inspector as package arenakernel knows it. It panics if i is closed.
func (i *Inspector) kernel() *arenakernel.Inspector {
	k := (*arenakernel.Inspector)(i)
	k.MustBeOpen()
	return k
}

// Inspect opens the arena of that name under /dev/shm or, if name has a slash, the file at that
// path. If the file is no arena, or has a layout that this program does not know, the error Is
// [shmsync.ErrIncompatible]. If its header is damaged, Inspect guesses the layout and reads what it
// can, and Check reports the damage.
func Inspect(name string) (*Inspector, error) {
	i, err := arenakernel.Inspect(name)
	return (*Inspector)(i), err
}

// InspectFile is Inspect for an open file. From then on the file belongs to the Inspector, even if
// InspectFile returns an error.
func InspectFile(f *os.File) (*Inspector, error) {
	i, err := arenakernel.InspectFile(f)
	return (*Inspector)(i), err
}

// Refresh discards the copy and reads the file again. It returns the same errors as Inspect, or the
// error of reading the file.
func (i *Inspector) Refresh() error { return i.kernel().Refresh() }

// Close closes the file, and frees the copy of its bytes. After that, every other method panics, and a second Close
// returns an error that Is [shmsync.ErrClosed].
func (i *Inspector) Close() error { return (*arenakernel.Inspector)(i).Close() }

// Witness describes a participant as an Inspector sees it.
type Witness struct {
	Participant
	// Life is "alive", "dead" or "unknown". It is "dead" as soon as the process has died. The State of such a
	// participant may still be live, until another process has reaped it, that is, has taken back what it held.
	// It is "unknown" if the participant has left, or was reaped, while the Inspector read the arena. It is also
	// "unknown" if neither the kernel nor a byte lock tells whether the process exists.
	Life string
}

// The values of Witness.Life.
const (
	LifeAlive   = "alive"
	LifeDead    = "dead"
	LifeUnknown = "unknown"
)

// Participants returns the participants of the arena. It includes dead participants that have not been reaped, that is,
// whose locks and slots no other process has taken back yet.
func (i *Inspector) Participants() (all []Witness) {
	for _, w := range i.kernel().Participants() {
		all = append(all, Witness{Participant: Participant(w.Participant), Life: w.Life})
	}
	return all
}

// DeathRecord describes a participant that died or left.
type DeathRecord struct {
	shmsync.Identity
	Left bool // the participant left by Close, and did not die
}

// DeathRecords returns the records of the participants that died or left, the latest first.
func (i *Inspector) DeathRecords() (all []DeathRecord) {
	for _, d := range i.kernel().DeathRecords() {
		all = append(all, DeathRecord(d))
	}
	return all
}

// ObjectInfo describes an object, together with facts that are not part of its header.
type ObjectInfo struct {
	Object
	Created time.Time       // when it was made
	OpenBy  []ParticipantID // the participants that have it open
	Known   bool            // this program knows its kind
}

// Objects returns the objects of the arena, ordered by their offsets. It leaves out objects with
// impossible headers; Check reports them.
func (i *Inspector) Objects() (all []ObjectInfo) {
	for _, o := range i.kernel().Objects() {
		all = append(all, ObjectInfo{Object: Object(o.Object), Created: o.Created, OpenBy: o.OpenBy, Known: o.Known})
	}
	return all
}

// Inspect returns the state of the object o, as [Arena.Inspect] does.
func (i *Inspector) Inspect(o Object) Inspection {
	return inspectionOf(i.kernel().Look(arenakernel.Object(o)))
}

// Who returns the identity of the participant n, living or dead, as Arena.Who does.
func (i *Inspector) Who(n ParticipantID) *shmsync.Identity { return i.kernel().Who(n) }

// Check examines the arena as Arena.Check does, and also examines the slots and the header.
func (i *Inspector) Check() error { return i.kernel().Check() }
