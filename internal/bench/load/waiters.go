//go:build linux

package load

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
)

// These are the indices of metrics in the slot of a waiters cell, which measures many waiting goroutines.
const (
	metricPerWaiter = iota // OS threads per waiter
	metricBytes            // resident bytes per waiter, without kernel stacks
	metricBlock            // ns until all are about to block, per waiter
	metricWake             // ns from the release until all have returned, per waiter
	metricThreads          // highest number of OS threads of the process at any check
	metricCancel           // ns from the end of the context until its waiters have returned, per waiter
	metricDisturbed        // waiters that returned without cause
)

// waitersMetrics are the names of the metrics, in the order of their indices.
var waitersMetrics = []string{"threads/waiter", "B/waiter", "block-ns", "wake-ns", "threads", "cancel-ns", "disturbed"}

const (
	waitersQuiet = 10 * time.Millisecond // CPU time that the process may use during WaitersSettle to count as idle
	settleRounds = 200
)

// crowdRun has n goroutines that wait. If the subject can cancel waits, every second goroutine waits with a context.
type crowdRun struct {
	bench.Crowd
	n, quitters int
	ctx         context.Context

	blocking  atomic.Int64
	got, left atomic.Int64 // waits that succeeded, and waits that were cancelled
	done      sync.WaitGroup
	quit      sync.WaitGroup // waits for the goroutines with the context
}

// workWaiters lets n goroutines wait, and measures what they cost the process. Then it cancels the waits of half of
// the goroutines, checks that only these return, and releases the other half.
func workWaiters(t *thread) error {
	c, err := as[bench.Crowd](t)
	if err != nil {
		return err
	}
	before, err := footprint()
	if err != nil {
		return err
	}
	t.await()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := &crowdRun{Crowd: c, n: int(t.N), ctx: ctx}
	r.start()
	m := &t.slot.Metrics
	m[metricBlock] = float64(shmsync.Monotonic()-t.slot.StartNs) / float64(r.n)
	settle()
	blocked, err := footprint()
	if err != nil {
		return err
	}
	m[metricPerWaiter] = float64(blocked.threads-before.threads) / float64(r.n)
	m[metricBytes] = float64(blocked.resident-before.resident) / float64(r.n)
	t.disturbed(r, 0)
	if r.quitters > 0 {
		t0 := shmsync.Monotonic()
		cancel()
		r.quit.Wait()
		m[metricCancel] = float64(shmsync.Monotonic()-t0) / float64(r.quitters)
		settle()
		t.disturbed(r, r.quitters)
	}
	stayed := r.n - r.quitters
	t0 := shmsync.Monotonic()
	c.Release()
	r.done.Wait()
	m[metricWake] = float64(shmsync.Monotonic()-t0) / float64(stayed)
	after, err := footprint()
	if err != nil {
		return err
	}
	m[metricThreads] = float64(max(blocked.threads, after.threads))
	if a, ok := c.(bench.Auditor); ok {
		if got := a.Audit(); got != stayed {
			t.violate("%d waited and stayed, the counter under the lock is %d", stayed, got)
		}
	}
	t.slot.Ops, t.slot.Total = t.N, t.N
	t.end()
	return nil
}

// start starts the goroutines. It returns when all of them are about to wait.
func (r *crowdRun) start() {
	q, quits := r.Crowd.(bench.Quitter)
	r.done.Add(r.n)
	for i := range r.n {
		if quits && i%2 == 1 {
			r.quitters++
			r.quit.Add(1)
			go func() {
				defer r.done.Done()
				defer r.quit.Done()
				r.blocking.Add(1)
				if q.BlockContext(r.ctx, i) == nil {
					r.got.Add(1)
				} else {
					r.left.Add(1)
				}
			}()
			continue
		}
		go func() {
			defer r.done.Done()
			r.blocking.Add(1)
			r.Block(i)
			r.got.Add(1)
		}()
	}
	for r.blocking.Load() < int64(r.n) {
		time.Sleep(100 * time.Microsecond)
	}
}

// disturbed counts the waits that went wrong before the release. Until the release, every cancelled wait must fail, and
// no other wait may end. The parameter left is the number of cancelled waits.
func (t *thread) disturbed(r *crowdRun, left int) {
	wrong := r.got.Load() + max(r.left.Load()-int64(left), int64(left)-r.left.Load())
	t.slot.Metrics[metricDisturbed] += float64(wrong)
	if wrong > 0 {
		t.violate("before the release %d got what they waited for and %d left; %d were to leave", r.got.Load(), r.left.Load(), left)
	}
}

// settle waits until this process uses hardly any CPU time.
func settle() {
	for range settleRounds {
		cpu := processCPU()
		time.Sleep(bench.WaitersSettle)
		if processCPU()-cpu < int64(waitersQuiet) {
			return
		}
	}
}

// footprintOf says how many threads and how much resident memory a process has.
type footprintOf struct{ threads, resident int64 }

// footprint returns the threads and the resident bytes of this process.
func footprint() (f footprintOf, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return f, err
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
	f = footprintOf{field("Threads"), field("VmRSS") * 1024}
	return f, err
}
