// Package linear checks histories of several processes for linearizability: the result of
// each call must be possible in some sequential order of all calls, in which no call comes
// before one that had returned when it began.
//
// The processes log the beginning and the end of each call by one clock, CLOCK_MONOTONIC.
// Some are killed. The last calls of their goroutines have no end, so they may have taken
// effect or not. The death itself is an operation, which takes back what the dead process
// had. It begins with the kill and ends when the process is reaped.
//
// The package is a module of its own, so that the checker, porcupine, is no dependency of
// the library. Everything is in its tests.
package linear
