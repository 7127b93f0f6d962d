//go:build linux

package peers

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// GoPeers are primitives that a Go program can use without this module. They use descriptors in blocking mode,
// because the network poller costs more than the primitive itself.
var GoPeers = []*bench.Subject{
	{By: "in-process", Prim: "sync.Mutex", InProcess: true,
		Scenarios: []string{"uncontended", "lock", "rw"}, Open: openSyncMutex},
	{By: "in-process", Prim: "chan", InProcess: true, Brief: []string{"handoff", "waiters", "queue"},
		Scenarios: []string{"handoff", "waiters", "queue", "uncontended", "lock", "sem"}, Open: openChan},
	{By: "go", Prim: "flock", Scenarios: []string{"uncontended", "lock", "crash", "idle"}, Open: openFlock},
	{By: "go", Prim: "eventfd", Scenarios: []string{"uncontended", "handoff", "wake", "lock", "sem", "event"},
		Files: eventfds, Open: openEventfd},
	{By: "go", Prim: "pipe", Scenarios: []string{"handoff", "wake", "queue"}, Files: pipes, Open: openPipe},
	{By: "go", Prim: "unix", Scenarios: []string{"handoff", "wake", "queue"}, Files: sockets, Open: openSocket},
	{By: "go", Prim: "waitv-floor", Scenarios: []string{"crash"},
		Check: checkFloor, Open: openFloor},
}

type syncMutex struct{ sync.Mutex }

func openSyncMutex(w *bench.Worker, _ int) (any, error) {
	return w.Shared(func() (any, error) { return new(syncMutex), nil })
}

func (m *syncMutex) Pairs(n int, counter *uint64) {
	for range n {
		m.Lock()
		*counter++
		m.Unlock()
	}
}

// chanPair passes a token between two goroutines through two channels. It can also let many goroutines wait for one
// channel.
type chanPair struct {
	send, recv chan uint32
	gate       chan struct{}
}

func openChan(w *bench.Worker, thread int) (any, error) {
	switch bench.ScenarioByID(w.Scenario).Name {
	case "queue":
		return w.Shared(func() (any, error) { return ChanQueue(make(chan uint64, w.Shape.Capacity)), nil })
	case "uncontended", "lock", "sem", "open":
		return w.Shared(func() (any, error) { return make(chanPermits, max(w.Shape.Permits, 1)), nil })
	}
	v, err := w.Shared(func() (any, error) {
		return &chanPair{make(chan uint32), make(chan uint32), make(chan struct{})}, nil
	})
	if err != nil {
		return nil, err
	}
	p := *v.(*chanPair)
	if thread == 1 {
		p.send, p.recv = p.recv, p.send
	}
	return p, nil
}

func (p chanPair) Pass(v uint32) { p.send <- v }
func (p chanPair) Await() uint32 { return <-p.recv }
func (p chanPair) Block(int)     { <-p.gate }
func (p chanPair) Release()      { close(p.gate) }

func (p chanPair) BlockContext(ctx context.Context, _ int) error {
	select {
	case <-p.gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fileLock uses flock(2) on an open file description that belongs to the thread.
type fileLock struct{ fd int }

func openFlock(*bench.Worker, int) (any, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", control.SegmentFD), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	return fileLock{fd}, nil
}

func (l fileLock) Lock() { mustRetry("flock", func() error { return unix.Flock(l.fd, unix.LOCK_EX) }) }
func (l fileLock) Unlock() {
	mustRetry("flock", func() error { return unix.Flock(l.fd, unix.LOCK_UN) })
}

func (l fileLock) Pairs(n int, counter *uint64) {
	for range n {
		l.Lock()
		*counter++
		l.Unlock()
	}
}

// mustRetry repeats a call that a signal interrupted. It panics on other errors, because they mean that the benchmark
// itself is wrong.
func mustRetry(op string, call func() error) {
	for {
		switch err := call(); err {
		case nil:
			return
		case unix.EINTR:
		default:
			panic(os.NewSyscallError(op, err))
		}
	}
}

// stream passes the values of a token through file descriptors. Each value is one record.
type stream struct {
	in, out int
	record  int
}

func (s stream) Pass(v uint32) {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(v))
	mustRetry("write", func() error { _, err := unix.Write(s.out, b[:s.record]); return err })
}

func (s stream) Await() uint32 {
	var b [8]byte
	mustRetry("read", func() error { _, err := unix.Read(s.in, b[:s.record]); return err })
	return uint32(binary.NativeEndian.Uint64(b[:]))
}

// eventfds creates an eventfd for each direction in which a token passes, or a single eventfd for a lock.
func eventfds(c *bench.Cell) ([]*os.File, error) {
	switch c.Scenario.Name {
	case "event":
		return gateEventfds()
	case "herd":
		return herdEventfds()
	}
	var files []*os.File
	permits, flags := uint(1), unix.EFD_CLOEXEC
	if c.Scenario.Name == "sem" {
		permits, flags = uint(c.Permits), unix.EFD_CLOEXEC|unix.EFD_SEMAPHORE
	}
	for _, value := range []uint{0, 0, permits} {
		fd, err := unix.Eventfd(value, flags)
		if err != nil {
			return files, os.NewSyscallError("eventfd", err)
		}
		files = append(files, os.NewFile(uintptr(fd), "eventfd"))
	}
	return files, nil
}

// eventLock is an eventfd that serves as a semaphore with one permit. A read takes the permit, and a write returns it.
type eventLock struct {
	stream
	gate stream
}

func openEventfd(w *bench.Worker, thread int) (any, error) {
	if bench.ScenarioByID(w.Scenario).Name == "event" {
		return fileGate{w.File(0), w.File(1)}, nil
	}
	e := bench.End(w, thread)
	return eventLock{stream{w.File(e), w.File(1 - e), 8}, stream{w.File(2), w.File(2), 8}}, nil
}

func (l eventLock) Lock()   { l.gate.Await() }
func (l eventLock) Unlock() { l.gate.Pass(1) }

func (l eventLock) Pairs(n int, counter *uint64) {
	for range n {
		l.Lock()
		*counter++
		l.Unlock()
	}
}

func pipes(c *bench.Cell) ([]*os.File, error) {
	var files []*os.File
	for range 2 {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return files, os.NewSyscallError("pipe2", err)
		}
		files = append(files, os.NewFile(uintptr(p[0]), "pipe"), os.NewFile(uintptr(p[1]), "pipe"))
		if c.Scenario.Name == "queue" { // the kernel rounds the size up to a page
			if _, err := unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, int(c.Capacity)*8); err != nil {
				return files, os.NewSyscallError("fcntl", err)
			}
		}
	}
	return files, nil
}

func openPipe(w *bench.Worker, thread int) (any, error) {
	if bench.ScenarioByID(w.Scenario).Name == "queue" {
		return &streamQueue{out: w.File(1), in: w.File(0)}, nil
	}
	e := bench.End(w, thread)
	return stream{w.File(2 * e), w.File(2*(1-e) + 1), 8}, nil
}

func sockets(*bench.Cell) ([]*os.File, error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	return []*os.File{os.NewFile(uintptr(p[0]), "socket"), os.NewFile(uintptr(p[1]), "socket")}, nil
}

func openSocket(w *bench.Worker, thread int) (any, error) {
	if bench.ScenarioByID(w.Scenario).Name == "queue" {
		return &streamQueue{out: w.File(1), in: w.File(0)}, nil
	}
	fd := w.File(bench.End(w, thread))
	return stream{fd, fd, 8}, nil
}

// Must panics if err is not nil, and so ends the worker. It is for errors that a correct subject does not report.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}
