//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"syscall"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// A CohortMutex is a lock for which many CPUs of several NUMA nodes compete.
func ExampleCohortMutex() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	c, err := prims.OpenCohortMutex(a, "ledger", &prims.CohortMutexOptions{Policy: prims.PolicyRelease})
	if err != nil {
		log.Fatal(err)
	}
	c.Lock()
	fmt.Println(c.TryLock(), c.Policy())
	c.Unlock()
	fmt.Println(c)
	// Output:
	// false release
	// cohort mutex ledger: free
}

// The processes get this lock in the order in which they asked for it.
func ExampleFairMutex() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	f, err := prims.OpenFairMutex(a, "printer", &prims.FairMutexOptions{Policy: prims.PolicyRelease})
	if err != nil {
		log.Fatal(err)
	}
	f.Lock()
	fmt.Println(f.TryLock(), f.State().Held)
	f.Unlock()
	// Output: false true
}

// Several readers hold the lock together; a writer holds it alone.
func ExampleRWMutex() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	m, err := prims.OpenRWMutex(a, "table", nil)
	if err != nil {
		log.Fatal(err)
	}
	m.RLock()
	m.RLock()
	fmt.Println(m.State().Readers, "readers; a writer gets in:", m.TryLock())
	m.RUnlock()
	m.RUnlock()
	m.Lock()
	m.Downgrade() // the writer goes on as a reader, and no other writer has held the lock in between
	fmt.Println(m.State().Readers, "reader")
	m.RUnlock()
	// Output:
	// 2 readers; a writer gets in: false
	// 1 reader
}

// A SpinLock is a lock that is held for a few instructions.
func ExampleSpinLock() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	l, err := prims.OpenSpinLock(a, "cursor", nil)
	if err != nil {
		log.Fatal(err)
	}
	cursor, err := arena.Value[[2]uint64](a, "cursor's data")
	if err != nil {
		log.Fatal(err)
	}
	l.Lock()
	cursor[0]++
	cursor[1] += 64
	l.Unlock()
	fmt.Println(*cursor)
	// Output: [1 64]
}

// A process reads while others read, too. If it then has to write, it upgrades its hold.
func ExampleRWSpinLock() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	l, err := prims.OpenRWSpinLock(a, "route", nil)
	if err != nil {
		log.Fatal(err)
	}
	l.RLock()
	l.LockUpgradable() // the readers that hold the lock stay; new readers wait
	l.RUnlock()
	l.Upgrade() // now this process holds the lock alone
	fmt.Println(l.TryRLock())
	l.Unlock()
	// Output: false
}

// Permits belong to the process that has acquired them. They come back when it dies.
func ExampleSemaphore() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	s, err := prims.OpenSemaphore(a, "connections", 10, nil)
	if err != nil {
		log.Fatal(err)
	}
	s.Acquire(3)
	fmt.Println(s.State().Free, s.TryAcquire(8))
	s.Release(3)
	// Output: 7 false
}

// Goroutines wait for a condition that a lock guards.
func ExampleCond() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	m, err := prims.OpenMutex(a, "lock", nil)
	if err != nil {
		log.Fatal(err)
	}
	c, err := prims.OpenCond(a, "changed", m, nil)
	if err != nil {
		log.Fatal(err)
	}
	stock, err := arena.Value[int64](a, "stock")
	if err != nil {
		log.Fatal(err)
	}
	go func() { // in another process, as a rule
		m.Lock()
		*stock = 5
		c.Signal()
		m.Unlock()
	}()
	m.Lock()
	for *stock < 5 {
		c.Wait()
	}
	fmt.Println(*stock)
	m.Unlock()
	// Output: 5
}

// One process announces that it is ready. Any number of processes wait for that.
func ExampleEvent() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	ready, err := prims.OpenEvent(a, "ready", nil)
	if err != nil {
		log.Fatal(err)
	}
	go ready.Set() // in another process, as a rule
	ready.Wait()
	fmt.Println(ready.IsSet())
	// Output: true
}

// Several processes follow a log. Each follower waits for the entry that it lacks.
func ExampleSequencer() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	written, err := prims.OpenSequencer(a, "written", nil)
	if err != nil {
		log.Fatal(err)
	}
	go func() { // in another process, as a rule
		for range 3 {
			written.Increment()
		}
	}()
	for entry := range uint64(3) {
		if err := written.Wait(entry + 1); err != nil {
			log.Fatal(err)
		}
		fmt.Println("entry", entry)
	}
	// Output:
	// entry 0
	// entry 1
	// entry 2
}

// Another process works on a result. If that process dies, the waiters get an error.
func ExampleFuture() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	f, err := prims.OpenFuture(a, "index", nil)
	if err != nil {
		log.Fatal(err)
	}
	if f.Claim() { // this process does the work
		go f.Set(0)
	}
	errno, err := f.WaitContext(context.Background())
	switch {
	case errors.Is(err, shmsync.ErrOwnerDead):
		f.Reset() // after the Reset, this process can claim the Future
	case err == nil && errno == 0:
		fmt.Println("the index is there")
	}
	fmt.Println(f.Set(syscall.EIO)) // false: the result is set already
	// Output:
	// the index is there
	// false
}

// A program waits until all its parts have started.
func ExampleLatch() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	l, err := prims.OpenLatch(a, "parts", 3, nil)
	if err != nil {
		log.Fatal(err)
	}
	l.Claim(1) // if this process dies before it counts down, waits fail
	l.CountDown(1)
	fmt.Println(l.TryWait())
	l.CountDown(2)
	l.Wait()
	fmt.Println(l.State().Count, "of", l.State().Size)
	// Output:
	// false
	// 0 of 3
}

// Each user ID is the key of a lock. No lock needs an object of its own: one MultiLock has them all.
func ExampleMultiLock() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	users, err := prims.OpenMultiLock(a, "users", nil)
	if err != nil {
		log.Fatal(err)
	}
	hold := users.Lock(4711)
	_, same := users.TryLock(4711)
	other, ok := users.TryLock(42)
	fmt.Println(same, ok)
	other.Unlock()
	hold.Unlock()
	// Output: false true
}

// A program defines its own primitive: a room with an open or closed door, and a number of free places.
func ExampleWaitable() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	type room struct {
		Open bool
		Free uint32
	}
	localLock, err := prims.OpenWaitable(a, "room", room{Free: 2}, prims.Rules[room, uint32]{
		Claim: func(r *room, places uint32) bool {
			if !r.Open || r.Free < places {
				return false
			}
			r.Free -= places
			return true
		},
		Release: func(r *room, places uint32) { r.Free += places }, // runs also if the process that has the places dies
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(localLock.TryWait(1))
	go localLock.Update(func(r *room) { r.Open = true })
	fmt.Println(localLock.Wait(2), localLock.State().Free)
	localLock.Release(2)
	// Output:
	// false
	// <nil> 0
}

// One wait ends when the first of several events has come.
func ExampleWaitAny() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	version, err := prims.OpenSequencer(a, "version", nil)
	if err != nil {
		log.Fatal(err)
	}
	quit, err := prims.OpenEvent(a, "quit", nil)
	if err != nil {
		log.Fatal(err)
	}
	go quit.Set()
	which, err := prims.WaitAny(version.At(1), quit)
	fmt.Println(which, err)
	// Output: 1 <nil>
}

// One wait ends when all of several events have come.
func ExampleWaitAll() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	version, err := prims.OpenSequencer(a, "version", nil)
	if err != nil {
		log.Fatal(err)
	}
	ready, err := prims.OpenEvent(a, "ready", nil)
	if err != nil {
		log.Fatal(err)
	}
	go ready.Set()
	go version.Advance(3)
	fmt.Println(prims.WaitAll(version.At(3), ready))
	// Output: <nil>
}

// A Pending is a wait in which no goroutine blocks.
func ExamplePending() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	ready, err := prims.OpenEvent(a, "ready", nil)
	if err != nil {
		log.Fatal(err)
	}
	p := ready.WaitAsync()
	ready.Set()
	<-p.Done()
	fmt.Println(p.Wait(), p.Cancel())
	// Output: <nil> false
}

// An item on lease goes back to the front of its queue when its process dies, or when the process
// gives it back.
func ExampleLease() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	q, err := prims.OpenQueue[uint64](a, "jobs", 10, nil)
	if err != nil {
		log.Fatal(err)
	}
	q.Put(1)
	q.Put(2)
	l, err := q.Lease()
	if err != nil {
		log.Fatal(err)
	}
	l.Nack()
	l, _ = q.TryLease()
	fmt.Println(l.Item, l.Attempts)
	l.Ack()
	// Output: 1 1
}

// Many small items are put into a queue at once.
func ExampleQueue_PutBatch() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	q, err := prims.OpenQueue[uint64](a, "samples", 10, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := q.PutBatch([]uint64{1, 2, 3}); err != nil {
		log.Fatal(err)
	}
	var into [8]uint64
	n, err := q.GetBatch(into[:])
	fmt.Println(into[:n], err)
	// Output: [1 2 3] <nil>
}

// A Gate makes sure that only one worker at a time works on the items of a queue.
func ExampleGate() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	w, err := prims.OpenSignalWaker(a, "workers", &prims.SignalWakerOptions{Signals: 1})
	if err != nil {
		log.Fatal(err)
	}
	g := w.Gate(3)
	fmt.Println(g.Schedule(), g.Begin())
	fmt.Println(g.Schedule()) // false: a worker executes the queue
	fmt.Println(g.Finish())   // true: the second Schedule has scheduled the queue again
	// Output:
	// true true
	// false
	// true
}
