package arenakernel

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/shmsync/shmsync/asm"
)

// identity identifies the process of a participant. A pid is not enough: the kernel reuses pids,
// and a pid means another process in another pid namespace. identity is used only to find the
// threads of a dead process; see [Arena.Gone].
type identity struct {
	startTime uint64 // clock ticks since boot, field 22 of /proc/self/stat
	pidNS     uint64 // inode of the pid namespace
	bootID    [16]byte
}

// sum returns a checksum of the identity, the generation and the pid of a participant. If one of
// these words changes, the checksum always changes.
func (id identity) sum(generation, pid uint32) uint64 {
	const basis, prime = 0xcbf29ce484222325, 0x100000001b3 // of FNV-1a
	h := uint64(basis)
	for _, w := range [...]uint64{
		uint64(generation)<<32 | uint64(pid), id.startTime, id.pidNS,
		binary.LittleEndian.Uint64(id.bootID[:8]), binary.LittleEndian.Uint64(id.bootID[8:]),
	} {
		h = (h ^ w) * prime
		h ^= h >> 32
	}
	return h
}

// selfIdentity returns the identity of this process. A part that /proc does not have is zero. If a shortage hides a
// part, for example because this process has too many files open, selfIdentity returns an error, and the next call
// tries again. selfIdentity is a variable so that tests can replace it.
var selfIdentity = new(ownIdentity).read

// ownIdentity is what this process has found out about itself.
type ownIdentity struct {
	mu    sync.Mutex
	id    identity
	known bool // id is final: a part that is zero cannot be found out
}

func (o *ownIdentity) read() (identity, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known {
		return o.id, nil
	}
	var start, ns, boot error
	if o.id.startTime == 0 {
		o.id.startTime, start = startTimeOf("self")
	}
	if o.id.pidNS == 0 {
		var link string
		link, ns = os.Readlink("/proc/self/ns/pid")
		o.id.pidNS = namespaceInode(link)
	}
	if o.id.bootID == [16]byte{} {
		var b []byte
		b, boot = os.ReadFile("/proc/sys/kernel/random/boot_id")
		o.id.bootID = parseUUID(strings.TrimSpace(string(b)))
	}
	for _, err := range []error{start, ns, boot} {
		if isShortage(err) {
			return o.id, err
		}
	}
	o.known = true
	return o.id, nil
}

// startTimeOf returns the start time of a process. The process name in parentheses may contain any
// characters, so the fields are counted from the last closing parenthesis.
func startTimeOf(pid string) (uint64, error) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, err
	}
	_, rest, _ := cutLast(string(b), ')')
	const startField = 22 - 3 // the text after the parenthesis begins with field 3
	fields := strings.Fields(rest)
	if len(fields) <= startField {
		return 0, errNoStartTime
	}
	return strconv.ParseUint(fields[startField], 10, 64)
}

var errNoStartTime = errors.New("/proc does not say when the process started")

func cutLast(s string, sep byte) (before, after string, found bool) {
	if i := strings.LastIndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// namespaceInode returns the inode number in a link such as pid:[4026531836].
func namespaceInode(link string) uint64 {
	_, rest, _ := strings.Cut(link, "[")
	n, _ := strconv.ParseUint(strings.TrimSuffix(rest, "]"), 10, 64)
	return n
}

func parseUUID(s string) (id [16]byte) {
	hex := strings.ReplaceAll(s, "-", "")
	if len(hex) != 32 {
		return id
	}
	for i := range id {
		b, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			return [16]byte{}
		}
		id[i] = byte(b)
	}
	return id
}

// description says who a participant is or was. It is copied to the death record of the
// participant.
type description struct {
	generation uint32 // generation of the participant that the slot describes; 0 if none
	flags      uint32 // flags of the death record
	pid        uint32
	died       uint64 // Unix ns
	label      string
}

// describe reads the words of slot i that describe a participant. slotDescribed is the generation
// of that participant. It is 0 while the words change, and while they describe no participant.
//
// A joiner that takes over the slot of a dead participant first records the death, and then
// describes itself. If the joiner dies between the two steps, the slot still describes the
// predecessor, with an earlier generation. So the death of the joiner is not reported with the
// label of its predecessor.
//
//	writer                       reader
//	stores 0                     loads slotDescribed
//	stores the other words       loads the other words
//	stores its own generation    loads slotDescribed again, and compares
//
//	writers: the participant, while it joins; the process that frees the slot
//	readers: every process that records a death or asks who a participant is
//	order:   acq_rel
//	futex:   none
//	crash:   0, or the generation of an earlier participant, may be left. Then the death record of a later
//	         participant says only that it was pending
func (a *Arena) describe(i int) description {
	s := a.slot(i)
	word := a.u32(s + slotDescribed)
	// sync(arena.described): acquire
	d := description{generation: word.Load()}
	d.flags, d.pid = a.deathRecordFlags(i), a.u32(s+slotPID).Load()
	d.died, d.label = dateIn(a.u64(s+slotDied).Load()), a.getLabel(s+slotLabel)
	asm.LoadFence() // the plain loads of the label must come before the next load
	if d.generation == 0 || word.Load() != d.generation {
		return description{}
	}
	return d
}

// dateIn returns the date in the word slotDied, or 0 if there is none. While a participant lives, the word
// slotDied of its slot contains its generation. A process replaces this generation by the date of the death,
// with a compare-and-swap. If the process is stopped before that, and a later participant takes the slot, the
// word has another generation, and the compare-and-swap fails. A date is a time in Unix ns, which is greater
// than every generation.
func dateIn(died uint64) uint64 {
	if died <= maxGeneration {
		return 0
	}
	return died
}

// describes reports whether the words of slot i describe the participant of state w, and not an
// earlier participant of the slot.
func (a *Arena) describes(i int, w slotWord) bool {
	return a.u32(a.slot(i)+slotDescribed).Load() == w.generation()
}

// describeNobody begins a change of the words of slot i that describe a participant. Until the
// change ends, the slot describes no participant.
func (a *Arena) describeNobody(i int) {
	clearBeforeLabel(a.u32(a.slot(i) + slotDescribed))
}

// describeSelf stores the words that describe this joiner, which has slot i in the given
// generation.
func (a *Arena) describeSelf(i int, generation uint32, label string) {
	s := a.slot(i)
	a.describeNobody(i)
	a.u32(s + slotAdmission).Store(admissionPending)
	a.u32(s + slotPID).Store(uint32(os.Getpid()))
	a.u64(s + slotStart).Store(0)
	a.putLabel(s+slotLabel, label)
	a.u64(s + slotDied).Store(uint64(generation)) // not a date, see dateIn
	// sync(arena.described): release
	a.u32(s + slotDescribed).Store(generation)
}
