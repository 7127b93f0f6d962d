//go:build linux

package main

import "sync"

// condVar is a condition variable of a monitor.
type condVar interface {
	Wait()
	Signal()
	Broadcast()
}

// monitor makes a bounded buffer, a gate, a sequence and a barrier from a lock
// and condition variables, as a textbook does. What they guard lies in the
// scratch.
type monitor struct {
	sync.Locker
	some, room condVar // there are items, there is room; the first serves all else
	words      *monitorWords
	capacity   uint64
	parties    uint64
}

func newMonitor(w *worker, l sync.Locker, some, room condVar) *monitor {
	return &monitor{Locker: l, some: some, room: room, words: &w.scratch().monitor,
		capacity: w.shape.Capacity, parties: uint64(w.procs * w.control.threads)}
}

func openSyncCond(w *worker, _ int) (any, error) {
	return w.Shared(func() (any, error) {
		l := new(sync.Mutex)
		return newMonitor(w, l, sync.NewCond(l), sync.NewCond(l)), nil
	})
}

// tell wakes as many as there is something for.
func tell(c condVar, n int) {
	if n == 1 {
		c.Signal()
	} else {
		c.Broadcast()
	}
}

func (m *monitor) Put(items []uint64) {
	w := m.words
	for len(items) > 0 {
		m.Lock()
		for w.tail-w.head == m.capacity {
			m.room.Wait()
		}
		n := 0
		for ; n < len(items) && w.tail-w.head < m.capacity; n++ {
			w.ring[w.tail%m.capacity] = items[n]
			w.tail++
		}
		m.Unlock()
		tell(m.some, n)
		items = items[n:]
	}
}

func (m *monitor) Get(buf []uint64) (n int) {
	w := m.words
	m.Lock()
	for w.tail == w.head && w.shut == 0 {
		m.some.Wait()
	}
	for ; n < len(buf) && w.tail != w.head; n++ {
		buf[n] = w.ring[w.head%m.capacity]
		w.head++
	}
	m.Unlock()
	tell(m.room, n)
	return n
}

func (m *monitor) Shut(int) {
	m.Lock()
	m.words.shut = 1
	m.Unlock()
	m.some.Broadcast()
}

func (m *monitor) Open(uint64) { m.Increment() }

func (m *monitor) Await(round uint64) { m.Wait(round) }

func (m *monitor) Increment() {
	m.Lock()
	m.words.value++
	m.Unlock()
	m.some.Broadcast()
}

func (m *monitor) Value() uint64 {
	m.Lock()
	defer m.Unlock()
	return m.words.value
}

// Wait waits until the value is at least token; false when it was stopped
// before.
func (m *monitor) Wait(token uint64) bool {
	m.Lock()
	defer m.Unlock()
	for m.words.value < token && m.words.shut == 0 {
		m.some.Wait()
	}
	return m.words.value >= token
}

func (m *monitor) Stop() { m.Shut(0) }

func (m *monitor) Meet() {
	w := m.words
	m.Lock()
	phase := w.phase
	if w.arrived++; w.arrived == m.parties {
		w.arrived = 0
		w.phase++
		m.Unlock()
		m.some.Broadcast()
		return
	}
	for w.phase == phase {
		m.some.Wait()
	}
	m.Unlock()
}

// monitorToken is one end of a token: the monitor's two condition variables are its two ways.
type monitorToken struct {
	*monitor
	end  int
	seen uint64
}

func (t *monitorToken) ways() (out, in *uint64, told, heard condVar) {
	if t.end == 0 {
		return &t.words.head, &t.words.tail, t.some, t.room
	}
	return &t.words.tail, &t.words.head, t.room, t.some
}

func (t *monitorToken) Pass(v uint32) {
	out, _, told, _ := t.ways()
	t.Lock()
	*out = uint64(v)
	t.Unlock()
	told.Signal()
}

func (t *monitorToken) Await() uint32 {
	_, in, _, heard := t.ways()
	t.Lock()
	for *in == t.seen {
		heard.Wait()
	}
	t.seen = *in
	t.Unlock()
	return uint32(t.seen)
}
