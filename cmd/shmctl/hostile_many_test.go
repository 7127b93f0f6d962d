//go:build linux

package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// forgery is the bytes of an arena with one FairMutex, which is held, and with as many participants as fit.
type forgery struct {
	b      []byte
	object uint64 // offset of the FairMutex
	next   uint64 // the next chunk to look at
}

const (
	forgedSlots      = arenakernel.MaxSlots
	forgedGeneration = 5
)

func newForgery(t *testing.T) *forgery {
	path := filepath.Join(t.TempDir(), "arena")
	seg, err := shm.CreateAt(path, 64<<20, func(s *shm.Segment) error {
		return arena.Format(s, &arena.Options{MaxParticipants: forgedSlots})
	}, nil)
	require.NoError(t, err)
	a, err := arena.FromSegment(seg, nil)
	require.NoError(t, err)
	defer a.Close()
	m, err := prims.OpenFairMutex(a, "fair", nil)
	require.NoError(t, err)
	m.Lock()
	f := &forgery{object: uint64(m.Offset())}
	f.b, err = os.ReadFile(path)
	require.NoError(t, err)
	for slot := range forgedSlots {
		s := f.b[4096+slot*2048:]
		if slot > 0 {
			binary.LittleEndian.PutUint32(s, 2|forgedGeneration<<3)      // live
			binary.LittleEndian.PutUint32(s[8:], 1|forgedGeneration<<14) // capRobust: the kernel marks the alive words
		} else {
			binary.LittleEndian.PutUint32(s, binary.LittleEndian.Uint32(s)&^(1<<21)) // it has no byte lock
		}
	}
	return f
}

// chunk makes a slab with blocks of 64 bytes from a free chunk. For each of these blocks it calls the parameter block
// with the offset and the bytes. The result of this call is the block word.
func (f *forgery) chunk(class uint64, block func(off uint64, b []byte) uint32) {
	le := binary.LittleEndian
	words, heap := f.b[le.Uint64(f.b[128:]):], le.Uint64(f.b[144:])
	for le.Uint64(words[f.next*8:]) != 0 {
		f.next++
	}
	le.PutUint64(words[f.next*8:], 2|8|class<<4)
	blocks := f.b[le.Uint64(f.b[136:])+f.next*4096:]
	for k := range uint64(1024) {
		off := heap + f.next<<16 + k*64
		le.PutUint32(blocks[k*4:], block(off, f.b[off:off+64]))
	}
}

// examine runs the commands that only examine an arena.
func (f *forgery) examine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "forged")
	require.NoError(t, os.WriteFile(path, f.b, 0o600))
	defer func(d time.Duration) { diagnose.ConfirmAfter = d }(diagnose.ConfirmAfter)
	diagnose.ConfirmAfter = time.Millisecond
	for _, args := range [][]string{{"waits", path}, {"waits", "--older=1ns", path}, {"show", path, "fair"}, {"metrics", path}, {"check", path}, {"graph", path}, {"diff", path, path}} {
		start := time.Now()
		code, _, errs := shmctl(args...)
		require.Contains(t, []int{exitOK, exitTrouble}, code, errs)
		require.Less(t, time.Since(start), proctest.Scale(proctest.DefaultTimeout), args)
	}
}

// TestForgedWaits checks that the commands end if a peer has filled an arena with forged waits.
func TestForgedWaits(t *testing.T) {
	f := newForgery(t)
	le := binary.LittleEndian
	for slot := range proctest.Rounds(200, forgedSlots) { // announce records of sleepers that sleep on no wait node
		for k := range 32 {
			r := f.b[4096+slot*2048+256+32*k:]
			le.PutUint64(r, f.object)
			le.PutUint64(r[8:], f.object+64)
			le.PutUint64(r[16:], 1000000)
		}
	}
	number := uint64(0)
	for range proctest.Rounds(16, uint64(128)) {
		f.chunk(17, func(_ uint64, b []byte) uint32 {
			number++
			le.PutUint32(b, 6) // parked
			le.PutUint32(b[4:], uint32(2+number%(forgedSlots-1))|forgedGeneration<<11)
			le.PutUint64(b[8:], f.object)
			le.PutUint64(b[24:], 1000000)
			le.PutUint64(b[40:], 1<<63|number<<32)
			return 4 // a wait node
		})
	}
	f.examine(t)
}

// TestForgedRecords checks that the commands end if a peer has filled an arena with a forged list of slot records.
func TestForgedRecords(t *testing.T) {
	f := newForgery(t)
	le := binary.LittleEndian
	chunks := proctest.Rounds(100, uint64(400))
	last, number := uint64(0), uint32(0)
	for range chunks {
		f.chunk(0, func(off uint64, b []byte) uint32 {
			number++
			le.PutUint64(b, last)
			le.PutUint64(b[8:], f.object)
			le.PutUint32(b[16:], 1)
			le.PutUint32(b[20:], number)
			last = off
			return 2 | 1<<3 // the record of slot 1
		})
	}
	le.PutUint32(f.b[f.object+56:], uint32(last/64))
	for range chunks {
		f.chunk(0, func(_ uint64, b []byte) uint32 {
			le.PutUint64(b[8:], f.object)
			return 1 | (2|forgedGeneration<<11)<<3 // claimed by the participant in slot 2
		})
	}
	f.examine(t)
}
