//go:build linux

package peers

import (
	"context"
	"encoding/binary"
	"os"
	"sync"

	xsemaphore "golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/bench"
)

// MorePeers are Go's primitives for the scenarios that need more than a lock or a value that is passed back and forth.
var MorePeers = []*bench.Subject{
	{By: "in-process", Prim: "sync.RWMutex", InProcess: true, Open: openSyncRWMutex,
		Scenarios: []string{"uncontended", "readers", "rw"}},
	{By: "in-process", Prim: "sync.RWMutex-read", InProcess: true, Open: openSyncRead, Scenarios: []string{"uncontended"}},
	{By: "in-process", Prim: "semaphore.Weighted", InProcess: true, Open: openXSemaphore,
		Scenarios: []string{"uncontended", "sem"}},
	{By: "in-process", Prim: "sync.Cond", InProcess: true, Open: openSyncCond,
		Scenarios: []string{"cond", "event", "seq", "barrier"}},
	{By: "go", Prim: "ofd", Open: openOFD, Brief: []string{"multi"},
		Scenarios: []string{"multi", "uncontended", "lock", "crash"}},
	{By: "in-process", Prim: "sync.Mutex-each", InProcess: true, Open: openMutexEach, Scenarios: []string{"multi"}},
}

// keyEach is a table of locks, with a sync.Mutex for each key.
type keyEach []struct {
	sync.Mutex
	_ [56]byte
}

func openMutexEach(w *bench.Worker, _ int) (any, error) {
	return w.Shared(func() (any, error) { return make(keyEach, w.Shape.Keys), nil })
}

func (l keyEach) LockKeys(keys []uint32) {
	for _, k := range keys {
		l[k].Lock()
	}
}

func (l keyEach) UnlockKeys(keys []uint32) {
	for _, k := range keys {
		l[k].Unlock()
	}
}

func (l keyEach) Held(keys []uint32) bool {
	for _, k := range keys {
		if !l[k].TryLock() {
			return true
		}
		l[k].Unlock()
	}
	return false
}

type syncRWMutex struct{ sync.RWMutex }

func openSyncRWMutex(w *bench.Worker, _ int) (any, error) {
	return w.Shared(func() (any, error) { return new(syncRWMutex), nil })
}

func (m *syncRWMutex) Pairs(n int, counter *uint64) {
	for range n {
		m.Lock()
		*counter++
		m.Unlock()
	}
}

func (m *syncRWMutex) ReadPairs(n int, guarded *uint64) (torn int) {
	for range n {
		m.RLock()
		if *guarded != 0 {
			torn++
		}
		m.RUnlock()
	}
	return torn
}

type syncRead struct{ sync.RWMutex }

func openSyncRead(*bench.Worker, int) (any, error) { return new(syncRead), nil }

func (m *syncRead) Pairs(n int, counter *uint64) {
	for range n {
		m.RLock()
		*counter++
		m.RUnlock()
	}
}

type xSemaphore struct{ s *xsemaphore.Weighted }

func openXSemaphore(w *bench.Worker, _ int) (any, error) {
	return w.Shared(func() (any, error) {
		return xSemaphore{xsemaphore.NewWeighted(int64(max(w.Shape.Permits, 1)))}, nil
	})
}

func (x xSemaphore) Acquire() {
	if err := x.s.Acquire(context.Background(), 1); err != nil {
		panic(err)
	}
}

func (x xSemaphore) Release() { x.s.Release(1) }

func (x xSemaphore) Pairs(n int, counter *uint64) {
	for range n {
		x.Acquire()
		*counter++
		x.Release()
	}
}

// fileKeys is a table of locks in a file, which has one byte for each key. Each lock is an OFD lock: a lock of fcntl(2)
// that belongs to an open file description. Of the locks that the kernel offers to processes, only OFD locks have keys.
type fileKeys struct{ fd int }

func openOFD(w *bench.Worker, thread int) (any, error) {
	l, err := openFlock(w, thread)
	if err != nil {
		return nil, err
	}
	return fileKeys{l.(fileLock).fd}, nil
}

func (l fileKeys) set(kind int16, key uint32) {
	mustRetry("fcntl", func() error {
		return unix.FcntlFlock(uintptr(l.fd), unix.F_OFD_SETLKW, &unix.Flock_t{Type: kind, Start: int64(key), Len: 1})
	})
}

func (l fileKeys) LockKeys(keys []uint32) {
	for _, k := range keys {
		l.set(unix.F_WRLCK, k)
	}
}

func (l fileKeys) UnlockKeys(keys []uint32) {
	for _, k := range keys {
		l.set(unix.F_UNLCK, k)
	}
}

// Held asks the kernel whether any of the bytes that belong to the keys is locked.
func (l fileKeys) Held(keys []uint32) bool {
	for _, k := range keys {
		lk := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(k), Len: 1}
		mustRetry("fcntl", func() error { return unix.FcntlFlock(uintptr(l.fd), unix.F_OFD_GETLK, &lk) })
		if lk.Type != unix.F_UNLCK {
			return true
		}
	}
	return false
}

// Lock and Unlock lock and unlock the byte of the file that belongs to key 0.
func (l fileKeys) Lock()   { l.set(unix.F_WRLCK, 0) }
func (l fileKeys) Unlock() { l.set(unix.F_UNLCK, 0) }

func (l fileKeys) Pairs(n int, counter *uint64) {
	for range n {
		l.Lock()
		*counter++
		l.Unlock()
	}
}

// chanPermits is a channel that serves as a lock or as a semaphore. Each value in the channel stands for a permit that
// a goroutine holds.
type chanPermits chan struct{}

func (c chanPermits) Acquire() { c <- struct{}{} }
func (c chanPermits) Release() { <-c }
func (c chanPermits) Lock()    { c.Acquire() }
func (c chanPermits) Unlock()  { c.Release() }

func (c chanPermits) Pairs(n int, counter *uint64) {
	for range n {
		c <- struct{}{}
		*counter++
		<-c
	}
}

// Acquire and Release use the eventfd as a counter of permits.
func (l eventLock) Acquire() { l.gate.Await() }
func (l eventLock) Release() { l.gate.Pass(1) }

// fileGate lets waiters through in rounds. It has an eventfd for the odd rounds and one for the even rounds. Each
// eventfd stays readable until the next round opens.
type fileGate [2]int

func (g fileGate) Open(round uint64) {
	next, this := g[(round+1)%2], g[round%2]
	var b [8]byte
	if _, err := unix.Read(next, b[:]); err != nil && err != unix.EAGAIN {
		panic(os.NewSyscallError("read", err))
	}
	binary.NativeEndian.PutUint64(b[:], 1)
	mustRetry("write", func() error { _, err := unix.Write(this, b[:]); return err })
}

func (g fileGate) Await(round uint64) {
	mustRetry("poll", func() error {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(g[round%2]), Events: unix.POLLIN}}, -1)
		return err
	})
}

func gateEventfds() ([]*os.File, error) {
	var files []*os.File
	for range 2 {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return files, os.NewSyscallError("eventfd", err)
		}
		files = append(files, os.NewFile(uintptr(fd), "eventfd"))
	}
	return files, nil
}
