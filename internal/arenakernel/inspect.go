package arenakernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/shm"
)

// An Inspector examines an arena from outside. It is not a participant: it takes no slot, writes
// nothing and wakes no thread. So it works even if the participants are stuck or the bytes of the
// arena are damaged. It copies the bytes that it reads, and works on this copy until Refresh; see
// [shm.Image].
//
// Only one goroutine may use an Inspector at a time.
type Inspector struct {
	a       *Arena // an Arena that works on the copy, and is no participant
	img     *shm.Image
	damage  error // the error in the header, or nil
	began   int64 // when the copy was begun; Unix time in ns
	created time.Time
	now     int64        // see SetNow
	records *recordLists // the lists of slot records in the copy
	closed  bool
}

// Inspect opens the arena with the given name in /dev/shm or, if the name contains a slash, the
// file at that path. If the file is not an arena, or has a layout that this program does not know,
// the error Is [shmsync.ErrIncompatible]. If the header is damaged, Inspect guesses the layout and
// reads what it can, and Check reports the damage.
func Inspect(name string) (*Inspector, error) {
	img, err := shm.OpenImage(name)
	if err != nil {
		return nil, err
	}
	return inspect(img)
}

// InspectFile is Inspect for an open file. The Inspector owns the file from then on, even if
// InspectFile returns an error.
func InspectFile(f *os.File) (*Inspector, error) {
	img, err := shm.ImageOf(f)
	if err != nil {
		return nil, err
	}
	return inspect(img)
}

func inspect(img *shm.Image) (*Inspector, error) {
	i := &Inspector{img: img}
	if err := i.read(); err != nil {
		img.Close()
		return nil, err
	}
	return i, nil
}

// read validates the header and makes an Arena that works on the copy.
func (i *Inspector) read() error {
	img := i.img
	i.began = time.Now().UnixNano()
	header := make([]byte, headerSize)
	n, err := img.File().ReadAt(header, 0)
	if err != nil && err != io.EOF {
		return &shmsync.Error{Op: "arena.inspect", Object: img.Name(), Err: err}
	}
	geo, err := validate(header[:n], uint64(img.Size()), img.Name())
	i.damage = nil
	if errors.Is(err, shmsync.ErrCorrupt) {
		i.damage = err
		geo, err = guess(header[:n], uint64(img.Size()), err)
	}
	if err != nil {
		return err
	}
	a := &Arena{membership: &membership{seg: &shm.Segment{}, copied: true, reaps: map[int]*reapProgress{}}}
	a.memory = newMemory(img.Bytes())
	a.fetch = img.Fetch
	a.data = func(off uint64) uint64 { return nextData(img.File(), off) }
	a.geo = geo
	a.label = img.Name()
	// A walk over the objects writes the offset of the object that it visits into a slot of the
	// copy. So the Arena needs a slot, and an ID that no participant has.
	a.mySlot, a.self = 1, makeParticipantID(1, 0)
	a.current, a.gone = a.isCurrent, a.Gone
	a.reserve = func(_, _ uint64) error { return nil }
	a.beforeWaits, a.now = i.readWaitsLast, i.now
	i.a, i.records = a, a.newRecordLists()
	i.created = unixTime(a.u64(hdrCreated).Load())
	return nil
}

// guess returns the most likely layout of an arena with a damaged header.
func guess(header []byte, length uint64, damage error) (geometry, error) {
	slots := defaultSlots
	if n := int(uint32(header[hdrSlots]) | uint32(header[hdrSlots+1])<<8 | uint32(header[hdrSlots+2])<<16 | uint32(header[hdrSlots+3])<<24); n >= 1 && n <= MaxSlots {
		slots = n
	}
	geo := plan(length, slots)
	if geo.chunkCount == 0 {
		return geo, damage
	}
	geo.counted = header[hdrCompat]&compatCounted != 0
	return geo, nil
}

// SetNow declares that the file is a dump, and that it was made at the time ns, in nanoseconds of
// CLOCK_MONOTONIC.
func (i *Inspector) SetNow(ns int64) { i.now, i.a.now = ns, ns }

// Refresh discards the copy and reads the file again. It returns the same errors as Inspect, or the
// error of reading the file.
func (i *Inspector) Refresh() error {
	i.MustBeOpen()
	i.img.Refresh()
	return i.read()
}

// Close frees the copy. A second Close changes nothing and returns an error that Is [shmsync.ErrClosed].
func (i *Inspector) Close() error {
	if i.closed {
		return &shmsync.Error{Op: "arena.inspect", Object: i.Path(), Err: shmsync.ErrClosed, Detail: "the Inspector is closed"}
	}
	i.closed = true
	i.a.memory = memory{} // so that a read finds every offset out of range, and does not touch unmapped memory
	return i.img.Close()
}

// MustBeOpen panics if the Inspector is closed.
func (i *Inspector) MustBeOpen() {
	if i.closed {
		panic("shmsync: use of the closed Inspector of " + i.Path())
	}
}

// Path returns the path of the inspected file.
func (i *Inspector) Path() string { return i.a.label }

// Removed reports whether the file has lost its name. Its participants can still use the file, but
// no other process can join by the path. Removed is false for a memfd, which never had a name.
func (i *Inspector) Removed() bool {
	link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", i.File().Fd()))
	if err != nil || !strings.HasSuffix(link, " (deleted)") || strings.HasPrefix(link, "/memfd:") {
		return false
	}
	// A file may be made without a name and get its name later. The descriptor of its maker then
	// shows the file as deleted, although it has a name. So ask for the number of names.
	st, err := i.File().Stat()
	return err == nil && unlinked(st)
}

// File returns the inspected file, open for reading.
func (i *Inspector) File() *os.File { return i.img.File() }

// Size returns the size of the arena in bytes.
func (i *Inspector) Size() int64 { return int64(i.a.geo.size) }

// MaxParticipants returns how many processes can be in the arena at once.
func (i *Inspector) MaxParticipants() int { return i.a.geo.slots }

// Epoch returns the number of the last epoch that began, or 0. The second result is the participant that is
// beginning the next epoch, or 0. The third result is true if no death was recorded since the last epoch began.
func (i *Inspector) Epoch() (number uint64, first ParticipantID, clean bool) {
	w := i.a.epochWord()
	if w.phase() == epochClaiming || w.phase() == epochClaimed {
		first = w.claimant()
		w = w.end()
	}
	return uint64(w.number()), first, i.a.epochDeaths(w.number()).Load() == i.a.u64(hdrDeathRecordsTotal).Load()
}

// IsIn reports whether the participant in a slot has been admitted, that is, whether its call of
// Open has returned, or is about to return.
func (i *Inspector) IsIn(slot int) bool {
	return i.a.u32(i.a.slot(slot)+slotAdmission).Load() == admissionIn
}

// Counted reports whether the arena's objects keep counters of their operations.
func (i *Inspector) Counted() bool { return i.a.geo.counted }

// Created returns when the arena was made.
func (i *Inspector) Created() time.Time { return i.created }

// Stats counts the blocks in the heap.
func (i *Inspector) Stats() AllocStats { return i.a.Stats() }

// Damage returns the error of the arena's header, or of reading the file. It returns nil if there
// is no such error.
func (i *Inspector) Damage() error {
	if i.damage != nil {
		return i.damage
	}
	return i.img.Err()
}

// Who returns the identity of the participant n, living or dead, as Arena.Who does.
func (i *Inspector) Who(n ParticipantID) *shmsync.Identity { return i.a.Who(n) }

// Current reports whether n is a participant that is not marked dead and has not left.
func (i *Inspector) Current(n ParticipantID) bool { return i.a.Current(n) }

// A Witness is a participant as an Inspector sees it.
type Witness struct {
	Participant
	// Life is "alive", "dead" or "unknown". It is "dead" for a dead participant that has not been
	// reaped yet, although its State is still live. It is "unknown" if the participant has left, or was
	// reaped, since the copy was made.
	Life string
	// Unlocked reports that the participant counts as dead only because its byte lock is free. The slot is not marked
	// dead, and no alive word is marked, although the kernel marks these words when a process ends. If the process
	// still exists, its byte lock may be on another file: a copy, or another view of the file, has byte locks of its
	// own.
	Unlocked bool
}

// Values of Witness.Life.
const (
	LifeAlive   = "alive"
	LifeDead    = "dead"
	LifeUnknown = "unknown"
)

// Participants returns the participants of the arena, including dead participants that have not
// been reaped.
func (i *Inspector) Participants() (all []Witness) {
	for slot := 1; slot <= i.a.geo.slots; slot++ {
		p, ok := i.a.participant(slot)
		if !ok {
			continue
		}
		p.Self = false
		w := Witness{Participant: p, Life: i.life(slot)}
		w.Unlocked = w.Life == LifeDead && i.isUnmarked(slot)
		all = append(all, w)
	}
	return all
}

// isUnmarked reports whether the slot of a participant does not show its death: the slot is not marked dead, and no
// alive word is marked. If the kernel does not mark the alive words of this participant, isUnmarked returns false. It
// reads the words of the slot from the file, because the process may have ended since the copy was made.
func (i *Inspector) isUnmarked(slot int) bool {
	if now := i.stateNow(slot); now != i.a.slotState(slot) || now.phase() == phaseDead || i.a.slotCaps(slot)&capRobust == 0 {
		return false
	}
	for k := range aliveWords {
		var b [4]byte
		if _, err := i.img.File().ReadAt(b[:], int64(i.a.aliveWord(slot, k))); err != nil || binary.LittleEndian.Uint32(b[:])&shmsync.RobustOwnerDied != 0 {
			return false
		}
	}
	return true
}

// life returns LifeAlive, LifeDead or LifeUnknown for the participant in a slot. life first checks
// whether the slot is marked dead, then whether the kernel has marked an alive word, and then the
// byte lock, which a process holds as long as it exists.
func (i *Inspector) life(slot int) string {
	a := i.a
	caps, w := a.slotCaps(slot), a.slotState(slot)
	if w.phase() == phaseDead {
		return LifeDead
	}
	if caps&capRobust != 0 {
		for k := range aliveWords {
			if a.u32(a.aliveWord(slot, k)).Load()&shmsync.RobustOwnerDied != 0 {
				return LifeDead
			}
		}
	}
	if w.hasByte() {
		if locked, err := shmsync.ByteLocked(i.img.File(), a.lockByte(slot)); err == nil {
			// The copy is older than the answer of the kernel about the byte lock. That answer is about the participant
			// of the copy only if this participant still has the slot. Otherwise the participant may have left.
			switch now := i.stateNow(slot); {
			case now.generation() != w.generation() || !now.taken():
				return LifeUnknown
			case locked && now.phase() != phaseDead:
				return LifeAlive
			}
			return LifeDead
		}
	}
	if caps&capRobust != 0 {
		return LifeAlive
	}
	return LifeUnknown
}

// stateNow returns the state that a slot has in the file now. If the file cannot be read, stateNow
// returns the state in the copy.
func (i *Inspector) stateNow(slot int) slotWord {
	var b [4]byte
	if _, err := i.img.File().ReadAt(b[:], int64(i.a.slot(slot)+slotState)); err != nil {
		return i.a.slotState(slot)
	}
	return slotWord(binary.LittleEndian.Uint32(b[:]))
}

// A DeathRecord describes a participant that died or left.
type DeathRecord struct {
	shmsync.Identity
	Left bool // the participant left by Close and did not die
}

// Name returns the ID of the participant.
func (o DeathRecord) Name() ParticipantID { return makeParticipantID(o.Slot, o.Generation) }

// DeathRecords returns the records of the participants that died or left, the latest first.
func (i *Inspector) DeathRecords() (all []DeathRecord) {
	for left, r := range map[bool]deathRecordRing{false: deathRecordsOfDead, true: deathRecordsOfLeft} {
		total := i.a.u64(r.total).Load()
		for back := uint64(1); back <= min(total, r.count); back++ {
			if id, _, ok := i.a.readDeathRecord(r, total-back); ok {
				all = append(all, DeathRecord{id, left})
			}
		}
	}
	slices.SortStableFunc(all, func(x, y DeathRecord) int { return y.Died.Compare(x.Died) })
	return all
}

// Deaths returns the number of recorded deaths plus the number of recorded leaves.
func (i *Inspector) Deaths() uint32 { return i.a.reaped() }

// ObjectInfo is an Object with further facts that the arena knows about it.
type ObjectInfo struct {
	Object
	Created time.Time       // when it was made
	OpenBy  []ParticipantID // the participants that have the object open
	Known   bool            // this program knows the object's kind
}

// Objects returns the objects of the arena, ordered by offset. It skips objects with impossible
// headers, which Check reports.
func (i *Inspector) Objects() (all []ObjectInfo) {
	a := i.a
	a.eachBlock(func(off Offset, _ uint64, w blockWord) bool {
		if w.kind() != blockObject {
			return true
		}
		h, err := a.headerAt(off)
		if err != nil || !h.load().there() {
			return true
		}
		_, known := opsOf(h.Object)
		all = append(all, ObjectInfo{
			Object: h.Object, Created: unixTime(a.u64(off + objCreated).Load()), OpenBy: a.openers(&h), Known: known,
		})
		return true
	})
	return all
}

// Look returns the state of an object, as the function KindOps.Inspect of its kind reports it.
func (i *Inspector) Look(o Object) Inspection {
	i.fetchBody(o)
	return i.a.Inspect(o)
}

// TypeText returns the type description in the body of an object, or "" if it has none. Package
// typetext reads such descriptions.
func (i *Inspector) TypeText(o Object) string {
	h, err := i.a.headerAt(o.Offset)
	if err != nil {
		return ""
	}
	return i.a.typeText(&h)
}

// fetchBody copies the whole body of an object from the file, if its kind has an Inspect or a Check
// function.
func (i *Inspector) fetchBody(o Object) {
	if ops, ok := opsOf(o); ok && (ops.Inspect != nil || ops.Check != nil) {
		i.img.Fetch(uint64(o.Body), o.Size)
	}
}

// Describe returns the state of an object as one line of text, according to its kind.
func (i *Inspector) Describe(o Object) string {
	i.fetchBody(o)
	return i.a.Describe(o)
}

// Check checks the copy as Arena.Check does. It also checks the slots and the header.
func (i *Inspector) Check() error {
	errs := []error{i.Damage()}
	for _, o := range i.Objects() {
		i.fetchBody(o.Object)
	}
	errs = append(errs, i.checkSlots()...)
	errs = append(errs, i.checkDeathRecords()...)
	errs = append(errs, i.a.Check())
	return errors.Join(append(errs, i.img.Err())...)
}

func (i *Inspector) checkSlots() (errs []error) {
	a := i.a
	for slot := 1; slot <= a.geo.slots; slot++ {
		bad := func(format string, args ...any) {
			if len(errs) < maxFindings {
				errs = append(errs, a.fail("arena.check", shmsync.ErrCorrupt, fmt.Sprintf("slot %d "+format, append([]any{slot}, args...)...)))
			}
		}
		w := a.slotState(slot)
		switch {
		case w.phase() > phaseDead || w>>22 != 0 || w.phase() == phaseFree && w.hasByte():
			bad("has the impossible state %#x", uint32(w))
		case w.taken() && w.generation() == 0:
			bad("is %v, but was never taken", w)
		}
		if win, _ := a.windowOf(slot); !win.legal() {
			bad("has the impossible window %v", win)
		}
		if n := a.u32(a.slot(slot) + slotReaper).Load(); n != 0 && (n&^ParticipantIDMask != 0 || !ParticipantID(n).valid()) {
			bad("has the reaper %#x, which nobody is called", n)
		}
	}
	return errs
}

func (i *Inspector) checkDeathRecords() (errs []error) {
	a := i.a
	for _, r := range []deathRecordRing{deathRecordsOfDead, deathRecordsOfLeft} {
		total := a.u64(r.total).Load()
		for k := range r.count {
			o := a.deathRecord(r, k)
			seq, name := a.u64(o+deathRecordSeq).Load(), a.u32(o+deathRecordID).Load()
			switch {
			case seq == 0:
			case seq > total || (seq-1)%r.count != k:
				errs = append(errs, a.fail("arena.check", shmsync.ErrCorrupt, fmt.Sprintf("death record %d says that it is number %d of %d", r.first+k, seq-1, total)))
			case name&^ParticipantIDMask != 0 || !ParticipantID(name).valid():
				errs = append(errs, a.fail("arena.check", shmsync.ErrCorrupt, fmt.Sprintf("death record %d is of %#x, which nobody is called", seq-1, name)))
			}
		}
	}
	return errs
}
