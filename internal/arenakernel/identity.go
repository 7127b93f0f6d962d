package arenakernel

import (
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/shmsync/shmsync/asm"
)

// identity identifies the process of a participant. A pid alone does not, because pids are reused
// and have other meanings in other namespaces. identity decides only where to look for the threads
// of a dead process; see [Arena.Gone].
type identity struct {
	startTime uint64 // clock ticks since boot, field 22 of /proc/self/stat
	pidNS     uint64 // inode of the pid namespace
	bootID    [16]byte
}

// sum returns the checksum of an identity together with the generation and the pid of the
// participant. A change of a single word always changes the sum.
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

var selfIdentity = sync.OnceValue(func() identity {
	var id identity
	id.startTime, _ = startTimeOf("self")
	if link, err := os.Readlink("/proc/self/ns/pid"); err == nil {
		id.pidNS = namespaceInode(link)
	}
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		id.bootID = parseUUID(strings.TrimSpace(string(b)))
	}
	return id
})

// startTimeOf returns the start time of a process. The process name in parentheses may contain
// anything, so the fields are counted from the last parenthesis.
func startTimeOf(pid string) (uint64, bool) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, false
	}
	_, rest, ok := cutLast(string(b), ')')
	if !ok {
		return 0, false
	}
	const startField = 22 - 3 // the rest starts with field 3
	fields := strings.Fields(rest)
	if len(fields) <= startField {
		return 0, false
	}
	t, err := strconv.ParseUint(fields[startField], 10, 64)
	return t, err == nil
}

func cutLast(s string, sep byte) (before, after string, found bool) {
	if i := strings.LastIndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// namespaceInode returns the inode in a link such as pid:[4026531836].
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

// description says who a participant is or was, for its death record.
type description struct {
	generation uint32 // generation of the participant that the slot describes; 0 if it describes nobody
	flags      uint32 // flags of the death record
	pid        uint32
	died       uint64 // Unix ns
	label      string
}

// describe reads the words of slot i that describe a participant. slotDescribed is the generation
// of this participant, or 0 while the words change and while they describe nobody.
//
// A joiner that takes a slot over from a dead participant records that death first, and then
// describes itself. So if the joiner dies meanwhile, its death is not confused with that of its
// predecessor, and is not reported with the label of its predecessor.
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
//	crash:   0, or the generation of an earlier participant, may be left: of a later one nothing is known but that it
//	         was pending
func (a *Arena) describe(i int) description {
	s := a.slot(i)
	word := a.u32(s + slotDescribed)
	// sync(arena.described): acquire
	d := description{generation: word.Load()}
	d.flags, d.pid = a.deathRecordFlags(i), a.u32(s+slotPID).Load()
	d.died, d.label = a.u64(s+slotDied).Load(), a.getLabel(s+slotLabel)
	asm.LoadFence() // because the bytes of the label are read by plain loads
	if d.generation == 0 || word.Load() != d.generation {
		return description{}
	}
	return d
}

// describes reports whether the words of slot i describe the participant that is in the slot in
// state w.
func (a *Arena) describes(i int, w slotWord) bool {
	return a.u32(a.slot(i)+slotDescribed).Load() == w.generation()
}

// describeNobody begins a change of the words that describe a participant.
func (a *Arena) describeNobody(i int) {
	a.u32(a.slot(i) + slotDescribed).Swap(0) // a swap, because stores of the label's bytes could overtake a plain store
}

// describeSelf writes the words that describe this joiner, in slot i with that generation.
func (a *Arena) describeSelf(i int, generation uint32, label string) {
	s := a.slot(i)
	a.describeNobody(i)
	a.u32(s + slotAdmission).Store(admissionPending)
	a.u32(s + slotPID).Store(uint32(os.Getpid()))
	a.u64(s + slotStart).Store(0)
	a.putLabel(s+slotLabel, label)
	a.u64(s + slotDied).Store(0)
	// sync(arena.described): release
	a.u32(s + slotDescribed).Store(generation)
}
