//go:build linux

package peers

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// FutexPeers run in Go the algorithms that the C helper runs, with the same system calls of the kernel. So the
// difference between the subjects c:futex and go:futex is the cost of Go. The other subjects use other calls to wait
// and wake.
var FutexPeers = []*bench.Subject{
	{By: "go", Prim: "futex", MaxN: naiveMost, Open: OpenFutexEnd, Scenarios: []string{"waiters", "handoff", "wake"},
		Brief: []string{"waiters", "wake"}},
	{By: "go", Prim: "futex-bitset", Open: OpenFutexEnd, Scenarios: []string{"handoff", "wake"}, Brief: []string{}},
	{By: "go", Prim: "futex-waitv", Open: OpenFutexEnd, Scenarios: []string{"handoff", "wake"}, Brief: []string{},
		Check: func() error { return shmsync.FeatureWaitV.Check() }},
	{By: "go", Prim: "futex-requeue", Open: openRequeue, Brief: []string{}},
	{By: "go", Prim: "futex2", Open: OpenFutexEnd, Scenarios: []string{"handoff", "wake"}, Brief: []string{}, Check: checkFutex2},
	{By: "go", Prim: "futex2-numa", Open: OpenFutexEnd, Scenarios: []string{"handoff", "wake"}, Brief: []string{}, Check: checkFutexNUMA},
}

// sleeping is a pair of functions: wait sleeps on a word while the word has the value v, and wake wakes n threads
// that sleep on a word.
type sleeping struct {
	wait func(w *atomic.Uint32, v uint32) error
	wake func(w *atomic.Uint32, n int)
}

var (
	sleepPlain = sleeping{
		func(w *atomic.Uint32, v uint32) error { _, err := shmsync.Wait(control.FutexWord(w), v, 0); return err },
		func(w *atomic.Uint32, n int) { shmsync.Wake(control.FutexWord(w), n) },
	}
	sleepBitset = sleeping{
		func(w *atomic.Uint32, v uint32) error {
			_, err := shmsync.WaitBitset(control.FutexWord(w), v, 1, 0)
			return err
		},
		func(w *atomic.Uint32, n int) { shmsync.WakeBitset(control.FutexWord(w), n, 1) },
	}
	sleepV = sleeping{
		func(w *atomic.Uint32, v uint32) error {
			_, _, err := shmsync.WaitV([]shmsync.WaitVEntry{shmsync.NewWaitVEntry(control.FutexWord(w), v)}, 0)
			return err
		},
		sleepPlain.wake,
	}
)

// FutexEnd is one of two ends that pass a token to each other. Each direction has two words: a futex word with the
// value of the token, and a word that says whether a thread may sleep on this futex word.
type FutexEnd struct {
	sleeping
	out, in           *atomic.Uint32
	outSleeps, sleeps *atomic.Uint32
	seen              uint32
	permits           *atomic.Uint32 // permits that a herd of waiting threads can take
}

// OpenFutexEnd opens one of two ends that pass a token to each other. It uses the kind of futex that the subject names.
func OpenFutexEnd(w *bench.Worker, thread int) (any, error) {
	how := map[string]sleeping{"futex": sleepPlain, "futex-bitset": sleepBitset, "futex-waitv": sleepV,
		"futex2": futex2(futex2U32), "futex2-numa": futex2(futex2U32 | futex2NUMA)}[w.Subject.Prim]
	if how.wait == nil {
		how = sleepPlain
	}
	if bench.ScenarioByID(w.Scenario).Name == "waiters" {
		return openNaiveCrowd(w, thread)
	}
	e := bench.End(w, thread)
	at := func(line, word int) *atomic.Uint32 { return control.WordAt(w.Mem, line*64+word*4) }
	if w.Proc == 0 { // process 0 opens the subject first; noNode lets the kernel choose a NUMA node
		for line := range 3 {
			at(line, 1).Store(noNode)
		}
	}
	return &FutexEnd{sleeping: how, out: at(e, 0), outSleeps: at(e, 2), in: at(1-e, 0), sleeps: at(1-e, 2), permits: at(2, 0)}, nil
}

func (f *FutexEnd) Pass(v uint32) {
	f.out.Store(v)
	if f.outSleeps.Load() != 0 {
		f.wake(f.out, 1)
	}
}

func (f *FutexEnd) Await() uint32 {
	v := f.in.Load()
	if v == f.seen {
		f.sleeps.Store(1)
		for v = f.in.Load(); v == f.seen; v = f.in.Load() {
			f.must(f.wait(f.in, v))
		}
		f.sleeps.Store(0)
	}
	f.seen = v
	return v
}

func (f *FutexEnd) Rouse(n int) {
	f.permits.Add(uint32(n))
	f.wake(f.permits, n)
}

func (f *FutexEnd) Rest() {
	for {
		v := f.permits.Load()
		switch {
		case v == 0:
			f.must(f.wait(f.permits, 0))
		case f.permits.CompareAndSwap(v, v-1):
			return
		}
	}
}

func (f *FutexEnd) must(err error) {
	if err != nil {
		panic(err)
	}
}

// Rest and Rouse use an eventfd as a counter of permits: Rouse adds permits, and Rest waits for a permit and takes
// it.

func (l eventLock) Rest()       { l.gate.Await() }
func (l eventLock) Rouse(n int) { l.gate.Pass(uint32(n)) }

// herdEventfds creates the eventfd from which a herd of waiting threads takes permits. It begins without permits, and
// each read takes one permit.
func herdEventfds() ([]*os.File, error) {
	var files []*os.File
	for range 3 {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_SEMAPHORE)
		if err != nil {
			return files, os.NewSyscallError("eventfd", err)
		}
		files = append(files, os.NewFile(uintptr(fd), "eventfd"))
	}
	return files, nil
}
