//go:build linux

package load

import "github.com/shmsync/shmsync/internal/bench"

// works has the measuring loop of each scenario, by the name of the scenario.
var works = map[string]func(*thread) error{
	"uncontended": workUncontended,
	"handoff":     workHandoff,
	"wake":        workWake,
	"lock":        workLock,
	"open":        workOpen,
	"oversub":     workLock,
	"herd":        workHerd,
	"crash":       workCrash,
	"waiters":     workWaiters,
	"idle":        workIdle,
	"readers":     workReaders,
	"rw":          workRW,
	"sem":         workSem,
	"cond":        workQueue,
	"event":       workEvent,
	"seq":         workSeq,
	"multi":       workMulti,
	"barrier":     workBarrier,
	"queue":       workQueue,
	"mem":         workMem,
	"matrix":      workMatrix,
	"padding":     workPadding,
	"home":        workHome,
	"stream":      workStream,
	"intruder":    workIntruder,
	"fence":       workFence,
}

// collects has functions that check the results of a measurement and derive its metrics, by the name of the scenario.
// For a scenario without such a function, measureCell does all of this.
var collects = map[string]func(*bench.Repetition, *bench.Account){
	"readers":  collectReaders,
	"rw":       collectRW,
	"sem":      collectSem,
	"cond":     collectQueue,
	"event":    collectEvent,
	"seq":      collectSeq,
	"multi":    collectMulti,
	"barrier":  collectBarrier,
	"queue":    collectQueue,
	"mem":      collectMem,
	"matrix":   collectMatrix,
	"padding":  collectPadding,
	"home":     collectHome,
	"stream":   collectStream,
	"fence":    collectFence,
	"intruder": collectIntruder,
	"herd":     collectHerd,
	"open":     collectOpen,
	"oversub":  collectOversub,
}
