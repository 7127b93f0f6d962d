package main

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// Errors that an engine tests with errors.Is.
var (
	ErrTableFull    = errors.New("all locks of the table are allocated")
	ErrNotAllocated = errors.New("lock is not allocated")
	ErrNotHeld      = errors.New("lock is not held by this process")
	ErrHeld         = errors.New("lock is held")
	ErrWrongSize    = errors.New("table has another size")
)

const most = 2048

// words is the shared memory of the table, apart from the locks: the size, and a bitmap of the allocated locks.
type words struct {
	Size      atomic.Uint32
	Allocated [most / 64]atomic.Uint64 // one bit for each lock
}

// Table is a table of numbered locks. It outlives the processes that use it.
type Table struct {
	arena *arena.Arena
	words *words
	size  int
}

// OpenTable opens the table of the given name. If there is none, it creates one with the given number of locks.
func OpenTable(name string, size int) (*Table, error) {
	if size < 1 || size > most {
		return nil, fmt.Errorf("%w: %d, want 1 to %d", ErrWrongSize, size, most)
	}
	a, err := arena.Open(name, nil)
	if err != nil {
		return nil, err
	}
	w, err := arena.Value[words](a, "locks")
	if err == nil && !w.Size.CompareAndSwap(0, uint32(size)) && w.Size.Load() != uint32(size) {
		err = fmt.Errorf("%w: %d, asked for %d", ErrWrongSize, w.Size.Load(), size)
	}
	if err != nil {
		a.Close()
		return nil, err
	}
	return &Table{arena: a, words: w, size: size}, nil
}

// Close leaves the table. If this process holds locks, they pass on to other processes, as after its death.
func (t *Table) Close() error { return t.arena.Close() }

// Allocate returns an unused lock. Any process may pass the number of the lock to Retrieve. A process that dies in
// Allocate, or before it has stored the number, may leave an allocated lock whose number no process knows.
func (t *Table) Allocate() (*Lock, error) {
	for n := range t.size {
		if t.mark(n, true) {
			return t.Retrieve(n)
		}
	}
	return nil, fmt.Errorf("%w: %d", ErrTableFull, t.size)
}

// Retrieve returns the lock with the number n.
func (t *Table) Retrieve(n int) (*Lock, error) {
	if n < 0 || n >= t.size || t.words.Allocated[n/64].Load()&(1<<(n%64)) == 0 {
		return nil, fmt.Errorf("%w: %d", ErrNotAllocated, n)
	}
	// The lock guards the state of a container in a database, and no data in the arena. The database undoes an unfinished
	// change, so the lock can pass on after a death without a repair.
	mu, err := prims.OpenMutex(t.arena, fmt.Sprintf("lock %d", n),
		&prims.MutexOptions{Policy: prims.PolicyRelease, Checked: true})
	if err != nil {
		return nil, err
	}
	return &Lock{Number: n, table: t, mu: mu}, nil
}

// Allocated returns the number of allocated locks.
func (t *Table) Allocated() (n int) {
	for i := range t.words.Allocated {
		n += bits.OnesCount64(t.words.Allocated[i].Load())
	}
	return n
}

// Held returns the holders of all held locks, by the numbers of the locks.
func (t *Table) Held() map[int]*shmsync.Identity {
	held := make(map[int]*shmsync.Identity)
	for n := range t.size {
		if l, err := t.Retrieve(n); err == nil {
			if s := l.mu.State(); s.Held {
				held[n] = s.Owner
			}
			l.mu.Close()
		}
	}
	return held
}

// mark sets or clears the bit that says whether lock n is allocated. It reports whether the call has changed the bit.
func (t *Table) mark(n int, allocated bool) bool {
	w, bit := &t.words.Allocated[n/64], uint64(1)<<(n%64)
	if allocated {
		return w.Or(bit)&bit == 0
	}
	return w.And(^bit)&bit != 0
}

// Lock is a lock of a Table.
type Lock struct {
	Number int

	table *Table
	mu    *prims.Mutex
	freed bool
}

// Lock locks l. It waits until no other process has the lock.
func (l *Lock) Lock() { l.mu.Lock() }

// Unlock unlocks l.
func (l *Lock) Unlock() (err error) {
	defer func() { // unlocking a lock that this process does not hold is a bug, and panics
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrNotHeld, r)
		}
	}()
	l.mu.Unlock()
	return nil
}

// Free returns l to the table, so that its number can be allocated again. If l is locked, Free returns ErrHeld.
func (l *Lock) Free() error {
	if l.freed {
		return fmt.Errorf("%w: %d", ErrNotAllocated, l.Number)
	}
	if l.mu.State().Held {
		return fmt.Errorf("%w: %d", ErrHeld, l.Number)
	}
	if !l.table.mark(l.Number, false) {
		return fmt.Errorf("%w: %d", ErrNotAllocated, l.Number)
	}
	l.freed = true
	return l.mu.Close()
}
