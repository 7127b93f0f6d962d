package arenakernel

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

// identity identifies the process of a participant: pids are reused, and have other meanings in
// other namespaces. It decides only where to look for the threads of a dead process; see
// [Arena.Gone].
type identity struct {
	startTime uint64 // clock ticks since boot, field 22 of /proc/self/stat
	pidNS     uint64 // inode of the pid namespace
	bootID    [16]byte
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

// startTimeOf reads when the process was started. The process name in parentheses may contain
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

// namespaceInode reads the inode out of a link such as pid:[4026531836].
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

// disown replaces the words of the dead participant of slot i, whose death is recorded, by those of this joiner, which is
// pending. If the joiner dies while it cleans up, its record does not tell the same death again.
func (a *Arena) disown(i int) {
	s := a.slot(i)
	a.u32(s + slotAdmission).Store(admissionPending)
	a.u32(s + slotPID).Store(uint32(os.Getpid()))
	a.putLabel(s+slotLabel, "")
	a.u64(s + slotDied).Store(0)
}
