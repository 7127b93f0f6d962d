// Package stopstorm stops processes that use a primitive, and measures whether the others continue to make progress.
//
// The library promises that a stopped process delays only processes that need what it visibly holds. A storm tests
// this promise for one primitive at a time. Several workers use the same objects. The parent stops one worker at a
// random moment, watches the progress of the others, and continues the worker. In a step stop, the parent instead
// single-steps one thread of a worker through an operation, and watches the others after each machine instruction.
//
// A lane is a goroutine that repeats one operation and counts how often it has returned. A worker may also be a
// program in C, built from worker.c. Its lanes are threads, with the same names and operations. The counters are on a
// page of shared memory outside of the arena, so they are correct in any state of the primitive. A stop is a freeze
// if a lane of another worker makes no progress for longer than a bound, and no visible hold of the victim excuses
// that. The workload defines which holds excuse a lane. The parent reads them from the words of the objects, with
// [arenakernel.Inspector], which takes no lock.
//
// Each worker has a heartbeat: a goroutine that only sleeps and counts. The parent counts heartbeats to measure how
// long a lane of that worker has stood still. A worker without CPU time has no heartbeat, so a busy machine does not
// look like a freeze.
package stopstorm
