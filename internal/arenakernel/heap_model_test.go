//go:build linux

package arenakernel

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/model"
)

// The words of the model of a chunk of the heap: the chunk word and the words of its blocks. They
// are like a chunkWord and blockWords, but with few participants and only two classes.
const (
	hChunk  = iota
	hBlock  // followed by the words of the other blocks
	hBlocks = 2
)

// The states of a chunk. In place of a participant, the word of a chunk names a process of the model.
const (
	heapSlab = iota // a slab of the class that the allocator wants
	heapOther
	heapFree
	heapNamed // from this value on, the word names the process that has claimed the chunk or sweeps it
)

func heapClaimed(process int) uint8  { return heapNamed + uint8(process) }
func heapSweeping(process int) uint8 { return heapNamed + 8 + uint8(process) }
func heapKind(w uint8) (sweeping bool, process int) {
	return w >= heapNamed+8, int(w-heapNamed) & 7
}

// The states of a block: free, raw, or claimed, freeing or blocked. The last three name a process.
const (
	heapBlockFree = iota
	heapBlockRaw
	heapBlockNamed
)

func heapBlock(process, kind int) uint8 { return uint8(heapBlockNamed + process*4 + kind) }

const (
	heapTaken = iota
	heapFreeing
	heapBlocked
)

// The processes.
const (
	heapAllocator = iota
	heapSweeper
	heapMaker
	heapReaper
)

// The ghost variables, which no process of the model reads.
const (
	gHas    = iota // 1 plus the block that the allocator has
	gReaped        // the processes that were reaped, as a bit set
)

// heapModel is the model of the protocol by which participants claim, sweep and reap chunks and blocks. Each
// field plants a mistake in the model.
type heapModel struct {
	looksOnce, blocksNothing, goesOnBlocked, leavesSweeps, freesSweeps, leavesClaims, noFence bool
}

var errHeapTwice = errors.New("a block is in a chunk that is something else by now")

func (m heapModel) explore() model.Result {
	y := model.System{
		Kills: 2,
		Check: func(s *model.Sys) error {
			if b := s.Ghost[gHas]; b != 0 {
				sweeping, _ := heapKind(s.Mem[hChunk])
				if s.Mem[hChunk] != heapSlab && !sweeping {
					return errHeapTwice
				}
			}
			return nil
		},
		// In the end, no word names a dead process, and no operation is incomplete.
		Done: func(s *model.Sys) bool {
			for b := range hBlocks {
				if s.Mem[hBlock+b] >= heapBlockNamed {
					return false
				}
			}
			return s.Mem[hChunk] < heapNamed
		},
		Show: func(s *model.Sys) string { return fmt.Sprint(s.Mem[:hBlock+hBlocks], s.Ghost) },
		Threads: []model.ThreadSpec{
			{Name: "allocator", Process: heapAllocator, Mortal: true, Run: m.allocate},
			{Name: "sweeper", Process: heapSweeper, Mortal: true, Run: m.sweep},
			{Name: "maker", Process: heapMaker, Mortal: true, Run: m.make},
			{Name: "reaper", Process: heapReaper, Run: m.reap},
		},
	}
	return y.Explore()
}

// allocate does the next step of claimIn, publish and Free.
func (m heapModel) allocate(x *model.Exec) {
	pc, b := x.PC(), x.R(0)
	x.Goto(pc + 1)
	switch pc {
	case model.Idle:
		x.Say("looks whether it is a slab of its class")
		*b = uint8(x.Choose(hBlocks))
		if x.Load(hChunk) != heapSlab {
			x.Disable()
		}
	case 1:
		x.Say("claims a block")
		if !x.CAS(hBlock+int(*b), heapBlockFree, heapBlock(heapAllocator, heapTaken)) {
			x.Idle()
		}
	case 2:
		x.Say("looks again")
		if x.Load(hChunk) != heapSlab && !m.looksOnce {
			x.Goto(6)
			return
		}
		x.Ghost[gHas] = *b + 1
	case 3:
		x.Say("publishes it")
		if !x.CAS(hBlock+int(*b), heapBlock(heapAllocator, heapTaken), heapBlockRaw) {
			x.Ghost[gHas] = 0 // the process was taken for dead, and its block was freed
			x.Idle()
		}
	case 4:
		x.Say("begins to free it")
		x.CAS(hBlock+int(*b), heapBlockRaw, heapBlock(heapAllocator, heapFreeing))
	case 5:
		x.Say("frees it")
		x.Ghost[gHas] = 0
		x.CAS(hBlock+int(*b), heapBlock(heapAllocator, heapFreeing), heapBlockFree)
		x.Idle()
	case 6:
		x.Say("gives up")
		x.CAS(hBlock+int(*b), heapBlock(heapAllocator, heapTaken), heapBlockFree)
		x.Idle()
	}
}

// sweep does the next step of sweepChunk.
func (m heapModel) sweep(x *model.Exec) {
	pc, b := x.PC(), x.R(0)
	x.Goto(pc + 1)
	switch pc {
	case model.Idle:
		x.Say("looks whether it is a slab")
		if x.Load(hChunk) != heapSlab {
			x.Disable()
		}
		*b = 0
	case 1:
		x.Say("looks whether a block is in use")
		if x.Load(hBlock+int(*b)) != heapBlockFree {
			x.Idle()
		} else if *b++; *b < hBlocks {
			x.Goto(1)
		}
	case 2:
		x.Say("begins to sweep")
		*b = 0
		if !x.CAS(hChunk, heapSlab, heapSweeping(heapSweeper)) {
			x.Idle()
		} else if m.blocksNothing {
			x.Goto(5)
		}
	case 3:
		x.Say("blocks a block")
		if !x.CAS(hBlock+int(*b), heapBlockFree, heapBlock(heapSweeper, heapBlocked)) && !m.goesOnBlocked {
			*b = 0
			x.Goto(6)
		} else if *b++; *b < hBlocks {
			x.Goto(3)
		} else {
			*b = 0
		}
	case 4:
		x.Say("unblocks a block")
		x.CAS(hBlock+int(*b), heapBlock(heapSweeper, heapBlocked), heapBlockFree)
		if *b++; *b < hBlocks {
			x.Goto(4)
		}
	case 5:
		x.Say("frees the chunk")
		x.CAS(hChunk, heapSweeping(heapSweeper), heapFree)
		x.Idle()
	case 6:
		x.Say("unblocks a block, for one is in use")
		x.CAS(hBlock+int(*b), heapBlock(heapSweeper, heapBlocked), heapBlockFree)
		if *b++; *b < hBlocks {
			x.Goto(6)
		}
	case 7:
		x.Say("leaves it the slab that it was")
		x.CAS(hChunk, heapSweeping(heapSweeper), heapSlab)
		x.Idle()
	}
}

// make does the next step of claimFresh, and then of the Free of the block. It makes a slab of either class.
func (m heapModel) make(x *model.Exec) {
	pc, b := x.PC(), x.R(0)
	x.Goto(pc + 1)
	switch pc {
	case model.Idle:
		x.Say("claims the chunk")
		*x.R(1) = uint8(x.Choose(2)) // the class
		*b = 0
		if !x.CAS(hChunk, heapFree, heapClaimed(heapMaker)) {
			x.Disable()
		}
	case 1:
		x.Say("claims a block of it")
		if !x.CAS(hBlock+int(*b), heapBlockFree, heapBlock(heapMaker, heapTaken)) {
			if *b++; *b < hBlocks {
				x.Goto(1)
			}
		}
	case 2:
		x.Say("makes a slab of it")
		if !x.CAS(hChunk, heapClaimed(heapMaker), *x.R(1)) || *b == hBlocks {
			x.Idle()
		}
	case 3:
		x.Say("gives the block back")
		x.CAS(hBlock+int(*b), heapBlock(heapMaker, heapTaken), heapBlockFree)
		x.Idle()
	}
}

// reap does the next step of reclaimBlocks, for one dead process after the other.
func (m heapModel) reap(x *model.Exec) {
	pc := x.PC()
	who, b := x.R(0), x.R(1)
	if pc != model.Idle {
		x.Goto(pc + 1)
	}
	dead := int(*who)
	switch pc {
	case model.Idle:
		for p := range heapReaper {
			if x.LifeOf(p) != model.Alive && x.Ghost[gReaped]&(1<<p) == 0 {
				x.Say("fences a dead one")
				x.Require()
				if !m.noFence {
					x.Membarrier()
				}
				x.Ghost[gReaped] |= 1 << p
				if p == heapAllocator {
					x.Ghost[gHas] = 0
				}
				*who, *b = uint8(p), 0
				x.Goto(1)
				return
			}
		}
		x.Disable()
	case 1:
		x.Say("looks whether that sweeps")
		if m.leavesSweeps || x.Load(hChunk) != heapSweeping(dead) {
			x.Goto(4)
		}
	case 2:
		x.Say("unblocks a block of the dead")
		x.CAS(hBlock+int(*b), heapBlock(dead, heapBlocked), heapBlockFree)
		if *b++; *b < hBlocks {
			x.Goto(2)
		}
	case 3:
		x.Say("makes it the slab that it was")
		to := uint8(heapSlab)
		if m.freesSweeps {
			to = heapFree
		}
		x.CAS(hChunk, heapSweeping(dead), to)
	case 4:
		x.Say("begins with the blocks")
		*b = 0
	case 5:
		x.Say("takes a block back")
		if w := x.Load(hBlock + int(*b)); w >= heapBlockNamed && int(w-heapBlockNamed)/4 == dead && !m.leavesClaims {
			x.CAS(hBlock+int(*b), w, heapBlockFree)
		}
		if *b++; *b < hBlocks {
			x.Goto(5)
		}
	case 6:
		x.Say("takes the chunk back")
		x.CAS(hChunk, heapClaimed(dead), heapFree)
		x.Idle()
	}
}

// TestModelHeap checks that a chunk stays a slab of its class while a block of it is claimed, even if another
// process sweeps the chunk or dies. In the end, no chunk and no block is claimed by a dead process.
func TestModelHeap(t *testing.T) {
	r := heapModel{}.explore()
	if r.Violation != nil {
		t.Fatalf("after %d states: %v", r.States, r.Violation)
	}
	t.Logf("%d states, %d steps: correct", r.States, r.Steps)
	for name, m := range map[string]heapModel{
		"looks at the chunk once": {looksOnce: true}, "sweeps without blocking": {blocksNothing: true},
		"goes on where a block is in use": {goesOnBlocked: true}, "frees what the dead swept": {freesSweeps: true},
		"leaves what the dead swept": {leavesSweeps: true}, "leaves what the dead claimed": {leavesClaims: true},
		"does not fence": {noFence: true},
	} {
		r := m.explore()
		require.NotNil(t, r.Violation, name)
		t.Logf("%s: after %d steps, %d states explored: %v", name, len(r.Violation.Trace)-1, r.States, r.Violation.Err)
	}
}
