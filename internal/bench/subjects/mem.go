//go:build linux

package subjects

import (
	"fmt"
	"os"
	"slices"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// memSubjects has subjects whose access times are measured: the memory of an arena.
var memSubjects = []*bench.Subject{
	{By: bench.Library, Prim: "arena", Segment: newPlacedArena, Scenarios: []string{"mem"}, Open: openMemory},
	{By: "test", Prim: "forgetful", Hidden: true, Segment: newPlacedArena, Scenarios: []string{"mem"}, Open: openForgetful},
}

// newPlacedArena creates an arena in a memfd, on the NUMA nodes and with the page size that the cell asks for.
func newPlacedArena(c *bench.Cell) (*os.File, error) {
	seg, err := shm.CreateMemfd("shmbench-memory", bench.MemBytes(c.N),
		func(s *shm.Segment) error { return arena.Format(s, &arena.Options{Size: s.Size()}) },
		&shm.Options{NUMA: c.Mem.Policy, HugePages: c.Mem.Huge})
	if err != nil {
		return nil, err
	}
	defer seg.Close()
	if d := seg.Degraded(); len(d) > 0 {
		return nil, d[0]
	}
	return seg.Reopen()
}

// memory is a block of memory in an arena, with a lock in the same arena.
type memory struct {
	*prims.Mutex
	a     *arena.Arena
	off   arena.Offset
	bytes uint64
}

func (m *memory) Words() []uint64 { return wordsOf(m.a.Segment().Bytes()[m.off:][:m.bytes]) }

func (m *memory) Where() ([]shm.Placement, int64, error) {
	parts, err := m.a.Where(m.off, m.bytes)
	if err != nil {
		return nil, 0, err
	}
	huge, err := m.a.Segment().HugeBytes()
	return parts, min(huge, int64(m.bytes)), err
}

func openMemory(w *bench.Worker, _ int) (any, error) {
	seg, err := shm.FromFile(w.Segment, &shm.Options{HugePages: transparent(shm.HugePages(w.Huge)), Populate: true})
	if err != nil {
		return nil, err
	}
	a, err := arena.FromSegment(seg, &arena.Options{Label: fmt.Sprintf("shmbench %d", w.Proc)})
	if err != nil {
		return nil, err
	}
	if err := awaitFence(a); err != nil {
		return nil, err
	}
	m := &memory{a: a, bytes: w.N << 20}
	if m.Mutex, err = prims.OpenMutex(a, "mutex", nil); err != nil {
		return nil, err
	}
	if m.off, err = a.Alloc(m.bytes, arena.MaxAlign); err != nil {
		return nil, err
	}
	return m, nil
}

// transparent returns the kind of huge pages that a process must request when it maps the memory. A process requests
// only transparent huge pages. Other kinds are a property of the file.
func transparent(h shm.HugePages) shm.HugePages {
	if h == shm.HugeTransparent {
		return h
	}
	return shm.HugeNone
}

// forgetful is wrong on purpose: it is memory that now and then loses what was written.
type forgetful struct {
	*memory
	holds int
}

func openForgetful(w *bench.Worker, thread int) (any, error) {
	v, err := openMemory(w, thread)
	if err != nil {
		return nil, err
	}
	return &forgetful{memory: v.(*memory)}, nil
}

func (f *forgetful) Unlock() {
	if f.holds++; f.holds%1000 == 0 {
		words := f.Words()
		at := slices.IndexFunc(words, func(v uint64) bool { return v != 0 })
		words[at] = 0
	}
	f.Mutex.Unlock()
}
