package prims

import (
	"fmt"
	"math/bits"
	"time"
)

// SignalStat is the number of one of the counters of a SignalWaker.
type SignalStat int

// The counters. The operations of a SignalWaker that was created with the option Count update those marked
// "counted". The program itself updates the other counters by the method Count.
const (
	StatTasksPolled        SignalStat = iota // executions that have begun; counted
	StatCompleted                            // executions that left the queue idle; counted
	StatYielded                              // executions that scheduled the queue again; counted
	StatWaiting                              // waits for a permit; counted
	StatCASFailures                          // CAS on a gate that failed because of another call; counted
	StatEmptyScans                           // calls of Next that found nothing; counted
	StatYieldQueuePolls                      // checks of a worker's own yielded tasks
	StatSignalPolls                          // signals that Next checked; counted
	StatStealAttempts                        // checks of other workers' queues
	StatStealSuccesses                       // steal attempts that found something
	StatLeafSummaryChecks                    // checks of a partition's summary; counted
	StatLeafSummaryHits                      // syncs of the partition summary that found work; counted
	StatLeafStealAttempts                    // checks of leaves of other partitions
	StatLeafStealSuccesses                   // steal attempts that found something

	signalStats = iota
)

var signalStatNames = [signalStats]string{
	"tasks polled", "completed", "yielded", "waiting", "CAS failures", "empty scans", "yield queue polls", "signal polls",
	"steal attempts", "steal successes", "leaf summary checks", "leaf summary hits", "leaf steal attempts",
	"leaf steal successes",
}

// String returns the name of the counter.
func (s SignalStat) String() string {
	if s < 0 || s >= signalStats {
		return fmt.Sprintf("stat %d", int(s))
	}
	return signalStatNames[s]
}

// Count adds n to a counter of the program.
func (w *SignalWaker) Count(s SignalStat, n uint64) {
	if s < 0 || s >= signalStats {
		w.mistake("counter %d", int(s))
	}
	w.row().stats[s].Add(n)
}

// add counts n operations of the library, if w was created with the option Count.
func (w *SignalWaker) add(s SignalStat, n uint64) {
	if w.counting {
		w.row().stats[s].Add(n)
	}
}

// Stats returns the counters, each as the sum over all processes that have ever joined the arena. Any process may
// read them.
func (w *SignalWaker) Stats() (stats [signalStats]uint64) {
	w.opening.use()
	for i := range w.rows {
		for s := range stats {
			stats[s] += w.rows[i].stats[s].Load()
		}
	}
	return stats
}

// SignalHealth is the state of a SignalWaker at about one moment.
type SignalHealth struct {
	At        time.Time // when the words were read
	Summary   uint64    // the summary: a bit for each signal that may have bits
	Signals   int       // number of signals that have bits
	Scheduled int       // queues that wait for an executor
	Executing int       // queues that a worker executes
	Reserved  int       // queues that are reserved for tasks
	Permits   uint64
	Sleepers  int
	Workers   int
	Yield     bool
	Tasks     bool
	Partition uint64 // leaves of the partition that may have work
	HasWork   bool   // a queue is scheduled, or a status bit is set
}

// Health reads all words without a lock, so it works even if another process is stuck.
func (w *SignalWaker) Health() SignalHealth {
	w.opening.use()
	h := w.health()
	h.Workers = w.WorkerCount()
	return h
}

func (v *signalView) health() (h SignalHealth) {
	h = SignalHealth{
		At: time.Now(), Summary: v.head.summary.Load() & v.mask, Permits: v.head.permits.Load(),
		Sleepers: v.sleepers(), Partition: v.head.partition.Load(),
	}
	for i := range v.lines {
		if v.lines[i].bits.Load() != 0 {
			h.Signals++
		}
		h.Reserved += bits.OnesCount64(v.lines[i].tasks.Load())
	}
	for q := range v.gates {
		switch s := signalGateWord(v.gates[q].word.Load()); {
		case s.executing():
			h.Executing++
		case s.scheduled():
			h.Scheduled++
		}
	}
	s := signalStatus(v.head.status.Load())
	h.Yield, h.Tasks = s&statusYield != 0, s&statusTasks != 0
	h.HasWork = h.Scheduled > 0 || h.Yield || h.Tasks
	return h
}

// String renders the state on one line.
func (h SignalHealth) String() string {
	return fmt.Sprintf("%d scheduled, %d executing, %d signals, summary %#x, permits %d, sleepers %d, workers %d, reserved %d, yield %v, tasks %v, partition %#x",
		h.Scheduled, h.Executing, h.Signals, h.Summary, h.Permits, h.Sleepers, h.Workers, h.Reserved, h.Yield, h.Tasks, h.Partition)
}
