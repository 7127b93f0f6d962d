//go:build linux

package main

// kitBars are the bars of the primitives beside mutexes and futexes.
func kitBars(solo cell) []bar {
	const (
		rwMutex, cSem = libBy + ":rwmutex", "c:sem"
	)
	readers := func(procs int) cell { return cell{Place: placeCross, Procs: procs, Threads: 1} }
	alone := readers(1)
	b := []bar{
		{Name: "read pair", Scenario: "uncontended", Subject: rwMutex + "-read", Peer: "in-process:sync.RWMutex-read", Cell: solo, Limit: 1.3},
		{Name: "read pair, 2 processes", Scenario: "readers", Subject: rwMutex, Peer: rwMutex, Cell: readers(2), PeerCell: &alone, Limit: 1.1},
		{Name: "semaphore pair", Scenario: "uncontended", Subject: libBy + ":semaphore", Peer: cSem, Cell: solo, Limit: 2},
	}
	return b
}
