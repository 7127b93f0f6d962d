//go:build linux

package bars

import "github.com/shmsync/shmsync/internal/bench"

// kitBars returns the bars, that is, the promises about speed, for all primitives except mutexes and futexes.
func kitBars(solo bench.Cell) []Bar {
	const (
		rwMutex, cSem, sequencer = bench.Library + ":rwmutex", "c:sem", bench.Library + ":sequencer"
		farWaiters               = 10_000
	)
	readers := func(procs int) bench.Cell { return bench.Cell{Place: bench.PlaceCross, Procs: procs, Threads: 1} }
	steps := func(waiters int) bench.Cell {
		return bench.Cell{Place: bench.PlaceCross, Procs: 2, Threads: 1, N: waiters}
	}
	alone, nobody := readers(1), steps(0)
	b := []Bar{
		{Name: "read pair", Scenario: "uncontended", Subject: rwMutex + "-read", Peer: "in-process:sync.RWMutex-read", Cell: solo, Limit: 1.3},
		{Name: "read pair, 2 processes", Scenario: "readers", Subject: rwMutex, Peer: rwMutex, Cell: readers(2), PeerCell: &alone, Limit: 1.1},
		{Name: "semaphore pair", Scenario: "uncontended", Subject: bench.Library + ":semaphore", Peer: cSem, Cell: solo, Limit: 2},
		{Name: "event pair", Scenario: "uncontended", Subject: bench.Library + ":event", Peer: cSem, Cell: solo, Limit: 2},
		{Name: "key pair", Scenario: "uncontended", Subject: bench.Library + ":multilock", Peer: cSem, Cell: solo, Limit: 2},
		{Name: "key pair, a key each", Scenario: "uncontended", Subject: bench.Library + ":multilock-any", Peer: cSem, Cell: solo},
		{Name: "step, 10k unsatisfied", Scenario: "seq", Subject: sequencer, Peer: sequencer, Cell: steps(farWaiters), PeerCell: &nobody, Limit: 2},
	}
	return b
}
