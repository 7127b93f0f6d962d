//go:build linux

package bars

import (
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
)

const (
	BarKills      = 300     // number of kills in all repetitions together
	barWaiters    = 100_000 // number of waiters in one process
	barWait       = time.Second
	barMaxWaiters = 3 // most repetitions of a cell with barWaiters waiters
	barMaxIdle    = 5
)

// bars are all promises of this project about speed.
var bars = barTable()

func barTable() []Bar {
	const (
		mutex, slow, futex = bench.Library + ":mutex", bench.Library + ":mutex-nofence", bench.Library + ":futex"
		told               = bench.Library + ":mutex-told"
		fair               = bench.Library + ":fairmutex"
		robust, cond, raw  = "c:robust", "c:cond", "c:futex"
		ns100              = 100 * time.Nanosecond
		cpuMost            = 5e6 // ns
		crashMost          = 1e6 // ns
		ownerMost          = 3e6 // ns
		threadsMost        = 32
	)
	solo := bench.Cell{Place: bench.PlaceSame, Procs: 1, Threads: 1}
	pair := func(place string, hog int) bench.Cell {
		return bench.Cell{Place: place, Procs: 2, Threads: 1, Hog: hog}
	}
	lock := func(threads int, work time.Duration) bench.Cell {
		return bench.Cell{Place: bench.PlaceCross, Procs: 2, Threads: threads, CS: work, Think: work}
	}
	one := func(threads int, work time.Duration) bench.Cell {
		return bench.Cell{Place: bench.PlaceAny, Procs: 1, Threads: threads, CS: work, Think: work}
	}
	kill := bench.Cell{Place: bench.PlaceCross, Procs: 1, Threads: 1}
	crowd := bench.Cell{Place: bench.PlaceAny, Procs: 1, Threads: 1, N: barWaiters, MaxReps: barMaxWaiters}
	idle := bench.Cell{Place: bench.PlaceCross, Procs: 2, Threads: 1, Time: barWait, MaxReps: barMaxIdle}

	b := []Bar{
		{Name: "uncontended", Scenario: "uncontended", Subject: mutex, Peer: "in-process:sync.Mutex", Cell: solo, Limit: 0.8},
		{Name: "uncontended", Scenario: "uncontended", Subject: mutex, Peer: robust, Cell: solo, Limit: 0.52},
		{Name: "uncontended, no fence", Scenario: "uncontended", Subject: slow, Peer: "in-process:sync.Mutex", Cell: solo, Limit: 1.05},
		{Name: "uncontended, no fence", Scenario: "uncontended", Subject: slow, Peer: robust, Cell: solo, Limit: 0.75},
		{Name: "round trip, 2 CPUs", Scenario: "handoff", Subject: futex, Peer: cond, Cell: pair(bench.PlaceCross, 0), Limit: 1.0 / 20},
		{Name: "round trip, 2 CPUs", Scenario: "handoff", Subject: futex, Peer: "c:futex-spin1000", Cell: pair(bench.PlaceCross, 0), Limit: 2},
		{Name: "round trip, 1 CPU", Scenario: "handoff", Subject: futex, Peer: raw, Cell: pair(bench.PlaceSame, 0), Limit: 1.7},
		{Name: "round trip, 1 CPU", Scenario: "handoff", Subject: futex, Peer: cond, Cell: pair(bench.PlaceSame, 0), Limit: 1},
		{Name: "round trip, 1 CPU, hog", Scenario: "handoff", Subject: futex, Peer: raw, Cell: pair(bench.PlaceSame, 1), Limit: 3},
		{Name: "wake, 2 CPUs", Scenario: "wake", Subject: futex, Peer: raw, Cell: pair(bench.PlaceCross, 0), Limit: 1.5},
		{Name: "lock 2×1, 100ns/100ns", Scenario: "lock", Subject: mutex, Peer: robust, Cell: lock(1, ns100), Limit: 1.1},
		{Name: "lock 2×8, 100ns/100ns", Scenario: "lock", Subject: mutex, Peer: robust, Cell: lock(8, ns100), Limit: 1.1},
		{Name: "lock 2×1, 0/0", Scenario: "lock", Subject: mutex, Peer: robust, Cell: lock(1, 0), Limit: 0.7},
		{Name: "lock 2×8, 0/0", Scenario: "lock", Subject: mutex, Peer: robust, Cell: lock(8, 0), Limit: 0.7},
		{Name: "fair lock 2×8, 100ns/100ns", Scenario: "lock", Subject: fair, Peer: robust, Cell: lock(8, ns100), Limit: 0.08},
		{Name: "fair lock 1×8, 100ns/100ns", Scenario: "lock", Subject: fair, Peer: robust, Cell: one(8, ns100), Limit: 0.08},
		{Name: "fair lock, uncontended", Scenario: "uncontended", Subject: fair, Peer: "in-process:sync.Mutex", Cell: solo, Limit: 2},
		{Name: "CPU of 1 s of waiting", Scenario: "idle", Subject: mutex, Cell: idle, Limit: cpuMost},
		{Name: "CPU of 1 s of waiting", Scenario: "idle", Subject: futex, Cell: idle, Limit: cpuMost},
		{Name: "kill to told, p50", Scenario: "crash", Subject: told, Peer: "go:waitv-floor", Cell: kill, Limit: 1.6},
		{Name: "kill to told, p50", Scenario: "crash", Subject: told, Peer: robust, Cell: kill},
		{Name: "kill to told, p99", Scenario: "crash", Subject: told, Cell: kill, Limit: crashMost, Pooled: 0.99},
		// The peer, a robust mutex in C, promises less than the Mutex: it does not wait until the system calls of the
		// dead process have ended. Therefore this bar has no limit, and only shows the times.
		{Name: "kill to owner, p50", Scenario: "crash", Subject: mutex, Peer: robust, Cell: kill},
		{Name: "kill to owner, p99", Scenario: "crash", Subject: mutex, Cell: kill, Limit: ownerMost, Pooled: 0.99},
	}
	b = append(b, kitBars(solo)...)
	for _, s := range []string{"mutex-one", "mutex-each", "sequencer-tokens", "event-each", "multilock-keys"} {
		s = bench.Library + ":" + s
		b = append(b,
			Bar{Name: "100k waiters, threads", Scenario: "waiters", Subject: s, Cell: crowd, Metric: "threads", Limit: threadsMost},
			Bar{Name: "100k waiters, disturbed", Scenario: "waiters", Subject: s, Cell: crowd, Metric: "disturbed", AtZero: true},
		)
	}
	for i := range b {
		switch b[i].Scenario {
		case "lock":
			b[i].Note = "jain"
		case "crash":
			b[i].Least = BarKills
		}
		if b[i].Subject == mutex && b[i].Scenario == "uncontended" {
			b[i].Needs = shmsync.FeatureMembarrier
		}
	}
	return b
}
