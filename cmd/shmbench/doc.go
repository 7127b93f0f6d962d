// Shmbench measures what it costs to coordinate processes on this host. It compares the primitives of this module with
// those that the host offers (pthread mutexes, futexes, semaphores, pipes, file locks), in the same run and with the
// same method.
//
// The process that the user starts measures nothing. Workers are separate processes, pinned to their CPUs. They read
// their plan from a control page in a memfd, start at one absolute instant, and leave counters and histograms in the
// page, where these survive a worker that is killed. The primitives of the C library are measured by an embedded C
// program, which is compiled on demand. Without a C compiler, shmbench skips these measurements.
//
// Every measurement checks its subject. For example, the plain counter that a lock guards must equal the number of
// acquisitions, and the values that two processes pass back and forth must arrive in sequence. A violation ends the
// program with status 3, however fast the subject is.
//
// Figures are comparable only within one run. shmbench repeats each measurement, runs the repetitions of all
// measurements in a seeded random order, and compares them as ratios with an interval.
package main
