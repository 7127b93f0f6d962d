//go:build linux

package prims

// Queued is how many waits are in line, of all processes.
func (f *FairMutex) Queued() (n int) {
	f.mon.enter(nil)
	f.fifo.each(func(w wait) bool {
		if f.mon.waiting(w) {
			n++
		}
		return true
	})
	f.mon.leave(nil)
	return n
}

// Body is where the words of f lie.
func (f *FairMutex) Body() (off, size uint64) { return uint64(f.object.Body), f.object.Size }

// Queued is how many waits are in line for a key, of all processes.
func (x *MultiLock) Queued(key uint64) (n int) {
	k := x.bucket(key)
	k.mon.enter(nil)
	k.each(func(w wait) bool {
		if w.Wanted().Load() == key && k.mon.waiting(w) {
			n++
		}
		return true
	})
	k.mon.leave(nil)
	return n
}

// Body is where the words of x lie.
func (x *MultiLock) Body() (off, size uint64) { return uint64(x.object.Body), x.object.Size }

// SameBucket reports whether two keys share a latch.
func (x *MultiLock) SameBucket(a, b uint64) bool { return x.index(a) == x.index(b) }
