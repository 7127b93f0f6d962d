// Package linear checks histories of several processes for linearizability: the results of the calls must be
// possible in some sequential order. In that order a call that has returned comes before each call that began
// later.
//
// The processes log the beginning and the end of each call, by the clock CLOCK_MONOTONIC. Some processes are
// killed. The last calls of their goroutines have no end, so each of these calls may have taken effect or not.
// The death itself is an operation, which takes back what the dead process had. It begins with the kill, and ends
// when the process is reaped.
//
// The package is a module of its own, so that the library does not depend on the checker, porcupine. All code is
// in the tests.
package linear
