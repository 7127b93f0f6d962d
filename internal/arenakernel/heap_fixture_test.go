//go:build linux

package arenakernel

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/shm"
	"github.com/stretchr/testify/require"
)

// neighbours is an arena in the memory of one process. Its participants are goroutines of this
// process. The words of the arena are on the Go heap, so that the race detector checks whether the
// participants synchronize.
type neighbours struct {
	bytes []byte
	geo   geometry

	mu       sync.Mutex
	live     map[ParticipantID]bool
	reserved uint64 // bytes
	limit    uint64 // the limit for the field reserved; 0 means no limit
}

func newNeighbours(size uint64, slots int) *neighbours {
	return &neighbours{bytes: make([]byte, size), geo: plan(size, slots), live: map[ParticipantID]bool{}}
}

// join makes a new participant in the given slot.
func (p *neighbours) join(slot int) *Arena {
	a := &Arena{membership: &membership{mySlot: slot, seg: &shm.Segment{}, watcher: noWatcher()}}
	a.memory = newMemory(p.bytes)
	a.geo = p.geo
	a.label = "neighbours"
	generation := a.slotState(slot).generation() + 1
	a.self = makeParticipantID(slot, generation)
	a.current, a.gone = p.current, func(ParticipantID) bool { return true }
	a.reserve, a.discard = p.reserve, func(_, _ uint64) {}
	p.mu.Lock()
	p.live[a.self] = true
	p.mu.Unlock()
	a.u32(a.slot(slot) + slotState).Store(uint32(makeSlotWord(phaseLive, generation)))
	return a
}

func (p *neighbours) current(n ParticipantID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live[n]
}

func (p *neighbours) reserve(off, n uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limit != 0 && p.reserved+n > p.limit {
		return fmt.Errorf("tmpfs is full: %w", shmsync.ErrNoSpace)
	}
	p.reserved += n
	return nil
}

// kill marks a participant dead, without reaping it.
func (p *neighbours) kill(dead ParticipantID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, dead)
}

// reap kills a participant, and lets reaper recover what it left.
func (p *neighbours) reap(reaper *Arena, dead ParticipantID) {
	p.kill(dead)
	reaper.freeNodesOf(dead)
	reaper.reclaimBlocks(dead)
	reaper.clearOpenBits(dead)
}

// sweepAll frees all slabs of the heap in which no block is in use.
func sweepAll(a *Arena) {
	for _, in := range []room{roomOfAll, roomOfRecords, roomOfLarge, roomOfNodes} {
		a.sweep(a.geo.chunkCount, in)
	}
}

func requireSound(t testing.TB, a *Arena) {
	t.Helper()
	require.NoError(t, a.Check())
}

func mustAlloc(t testing.TB, a *Arena, size, align uint64) Offset {
	t.Helper()
	off, err := a.Alloc(size, align)
	require.NoError(t, err)
	return off
}

// requirePanicNaming calls f and requires that f panics with a message that contains the name of
// the arena and off.
func requirePanicNaming(t testing.TB, off Offset, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		message := fmt.Sprint(recover())
		require.Contains(t, message, strconv.Quote("neighbours"))
		require.Contains(t, message, off.String())
	}()
	f()
}

// isAny reports whether err matches one of targets.
func isAny(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// noWatcher returns the watcherThread of a joiner in a test. It has no robust list, as on a system without such lists.
func noWatcher() *watcherThread {
	t := &watcherThread{ready: newMeeting()}
	t.ready.arrive()
	return t
}
