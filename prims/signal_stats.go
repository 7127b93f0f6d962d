package prims

import (
	"fmt"
	"math/bits"
	"time"
)

// SignalStat names a counter of a SignalWaker.
type SignalStat int

// The counters. The operations of a SignalWaker that was created with the option Count count
// those marked "counted". The others are for the method Count.
const (
	StatTasksPolled        SignalStat = iota // executions begun; counted
	StatCompleted                            // executions that left the queue idle; counted
	StatYielded                              // executions that scheduled it again; counted
	StatWaiting                              // waits for a permit; counted
	StatCASFailures                          // changes of a gate that another was faster with; counted
	StatEmptyScans                           // calls of Next that found nothing; counted
	StatYieldQueuePolls                      // looks at a worker's own yielded tasks
	StatSignalPolls                          // signals that Next looked at; counted
	StatStealAttempts                        // looks at other workers' queues
	StatStealSuccesses                       // those that found something
	StatLeafSummaryChecks                    // looks at a partition's summary; counted
	StatLeafSummaryHits                      // syncs of it that found work; counted
	StatLeafStealAttempts                    // looks at leaves of other partitions
	StatLeafStealSuccesses                   // those that found something

	signalStats = iota
)

var signalStatNames = [signalStats]string{
	"tasks polled", "completed", "yielded", "waiting", "CAS failures", "empty scans", "yield queue polls", "signal polls",
	"steal attempts", "steal successes", "leaf summary checks", "leaf summary hits", "leaf steal attempts",
	"leaf steal successes",
}

// String names the counter.
func (s SignalStat) String() string {
	if s < 0 || s >= signalStats {
		return fmt.Sprintf("stat %d", int(s))
	}
	return signalStatNames[s]
}

// Count adds n to a counter.
func (w *SignalWaker) Count(s SignalStat, n uint64) {
	if s < 0 || s >= signalStats {
		w.mistake("counter %d", int(s))
	}
	w.row().stats[s].Add(n)
}

// add is Count by an operation.
func (w *SignalWaker) add(s SignalStat, n uint64) {
	if w.counting {
		w.row().stats[s].Add(n)
	}
}

// Stats gives the counters, each the sum over all processes that ever were in the
// arena. Any process may read them.
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
	At        time.Time // of the look
	Summary   uint64    // signals that may have bits
	Signals   int       // how many of these have
	Scheduled int       // queues that wait for an executor
	Executing int       // queues that have one
	Reserved  int       // queues that are reserved for tasks
	Permits   uint64
	Sleepers  int
	Workers   int
	Yield     bool
	Tasks     bool
	Partition uint64 // leaves of the partition that may have work
	HasWork   bool   // a queue is scheduled, or a status bit set
}

// Health looks at all words. It may be called by any process, for one that is
// stuck.
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

// String renders it on one line.
func (h SignalHealth) String() string {
	return fmt.Sprintf("%d scheduled, %d executing, %d signals, summary %#x, permits %d, sleepers %d, workers %d, reserved %d, yield %v, tasks %v, partition %#x",
		h.Scheduled, h.Executing, h.Signals, h.Summary, h.Permits, h.Sleepers, h.Workers, h.Reserved, h.Yield, h.Tasks, h.Partition)
}
