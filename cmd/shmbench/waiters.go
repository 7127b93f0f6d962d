//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
)

// Metrics of a waiters cell, by their place in the slot.
const (
	metricThreads = iota // OS threads per waiter
	metricBytes          // resident bytes per waiter, kernel stacks not counted
	metricBlock          // ns until one more is blocked
	metricWake           // ns from release until all have returned
)

// waitersSettle is how long a crowd gets to fall asleep after its last member
// has announced itself.
const waitersSettle = 30 * time.Millisecond

// workWaiters blocks n goroutines and looks at what that costs the process.
func workWaiters(t *thread) error {
	c, err := as[crowd](t)
	if err != nil {
		return err
	}
	threads0, bytes0, err := footprint()
	if err != nil {
		return err
	}
	t.await()
	n := int(t.n)
	var blocking atomic.Int64
	var done sync.WaitGroup
	done.Add(n)
	for range n {
		go func() {
			blocking.Add(1)
			c.Block()
			done.Done()
		}()
	}
	for blocking.Load() < int64(n) {
		time.Sleep(100 * time.Microsecond)
	}
	blocked := shmsync.Monotonic()
	time.Sleep(waitersSettle)
	threads1, bytes1, err := footprint()
	if err != nil {
		return err
	}
	t0 := shmsync.Monotonic()
	c.Release()
	done.Wait()
	t1 := shmsync.Monotonic()
	m := &t.slot.metrics
	m[metricThreads] = float64(threads1-threads0) / float64(n)
	m[metricBytes] = float64(bytes1-bytes0) / float64(n)
	m[metricBlock] = float64(blocked-t.slot.startNs) / float64(n)
	m[metricWake] = float64(t1 - t0)
	t.slot.ops, t.slot.total = t.n, t.n
	t.end()
	return nil
}

// footprint gives the threads and the resident bytes of this process.
func footprint() (threads, resident int64, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0, err
	}
	field := func(name string) int64 {
		_, rest, _ := bytes.Cut(status, []byte("\n"+name+":"))
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		v, perr := strconv.ParseInt(string(bytes.Fields(line)[0]), 10, 64)
		if perr != nil {
			err = fmt.Errorf("%s in /proc/self/status: %w", name, perr)
		}
		return v
	}
	threads, resident = field("Threads"), field("VmRSS")*1024
	return threads, resident, err
}
