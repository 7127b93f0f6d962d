//go:build linux

package peers

import (
	"sync"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// condVar is a condition variable, on which threads wait until another thread signals a change.
type condVar interface {
	Wait()
	Signal()
	Broadcast()
}

// Monitor implements a bounded buffer, a gate, a sequence and a barrier with a lock and condition variables, as
// textbooks do. The data that the lock guards is in shared memory, in the Scratch of the measurement.
type Monitor struct {
	sync.Locker
	some, room condVar // some: new items, or another change of the data; room: free places of a buffer
	words      *control.MonitorWords
	capacity   uint64
	parties    uint64
}

// NewMonitor returns a monitor that uses the lock l and two condition variables of that lock.
func NewMonitor(w *bench.Worker, l sync.Locker, some, room condVar) *Monitor {
	return &Monitor{Locker: l, some: some, room: room, words: &w.Scratch().Monitor,
		capacity: w.Shape.Capacity, parties: uint64(w.Procs * w.Control.Threads)}
}

func openSyncCond(w *bench.Worker, _ int) (any, error) {
	return w.Shared(func() (any, error) {
		l := new(sync.Mutex)
		return NewMonitor(w, l, sync.NewCond(l), sync.NewCond(l)), nil
	})
}

// tell wakes one waiter of the condition variable if n is 1, and otherwise all its waiters.
func tell(c condVar, n int) {
	if n == 1 {
		c.Signal()
	} else {
		c.Broadcast()
	}
}

func (m *Monitor) Put(items []uint64) {
	w := m.words
	for len(items) > 0 {
		m.Lock()
		for w.Tail-w.Head == m.capacity {
			m.room.Wait()
		}
		n := 0
		for ; n < len(items) && w.Tail-w.Head < m.capacity; n++ {
			w.Ring[w.Tail%m.capacity] = items[n]
			w.Tail++
		}
		m.Unlock()
		tell(m.some, n)
		items = items[n:]
	}
}

func (m *Monitor) Get(buf []uint64) (n int) {
	w := m.words
	m.Lock()
	for w.Tail == w.Head && w.Shut == 0 {
		m.some.Wait()
	}
	for ; n < len(buf) && w.Tail != w.Head; n++ {
		buf[n] = w.Ring[w.Head%m.capacity]
		w.Head++
	}
	m.Unlock()
	tell(m.room, n)
	return n
}

func (m *Monitor) Shut(int) {
	m.Lock()
	m.words.Shut = 1
	m.Unlock()
	m.some.Broadcast()
}

func (m *Monitor) Open(uint64) { m.Increment() }

func (m *Monitor) Await(round uint64) { m.Wait(round) }

func (m *Monitor) Increment() {
	m.Lock()
	m.words.Value++
	m.Unlock()
	m.some.Broadcast()
}

func (m *Monitor) Value() uint64 {
	m.Lock()
	defer m.Unlock()
	return m.words.Value
}

// Wait waits until the value of the sequence is at least token. It returns false if the sequence was stopped first.
func (m *Monitor) Wait(token uint64) bool {
	m.Lock()
	defer m.Unlock()
	for m.words.Value < token && m.words.Shut == 0 {
		m.some.Wait()
	}
	return m.words.Value >= token
}

func (m *Monitor) Stop() { m.Shut(0) }

func (m *Monitor) Meet() {
	w := m.words
	m.Lock()
	phase := w.Phase
	if w.Arrived++; w.Arrived == m.parties {
		w.Arrived = 0
		w.Phase++
		m.Unlock()
		m.some.Broadcast()
		return
	}
	for w.Phase == phase {
		m.some.Wait()
	}
	m.Unlock()
}

// MonitorToken is one of two ends that pass a token to each other. Each of the two condition variables of the monitor
// is for one direction.
type MonitorToken struct {
	*Monitor
	End  int
	seen uint64
}

func (t *MonitorToken) ways() (out, in *uint64, told, heard condVar) {
	if t.End == 0 {
		return &t.words.Head, &t.words.Tail, t.some, t.room
	}
	return &t.words.Tail, &t.words.Head, t.room, t.some
}

func (t *MonitorToken) Pass(v uint32) {
	out, _, told, _ := t.ways()
	t.Lock()
	*out = uint64(v)
	t.Unlock()
	told.Signal()
}

func (t *MonitorToken) Await() uint32 {
	_, in, _, heard := t.ways()
	t.Lock()
	for *in == t.seen {
		heard.Wait()
	}
	t.seen = *in
	t.Unlock()
	return uint32(t.seen)
}
