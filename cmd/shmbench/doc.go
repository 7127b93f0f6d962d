// Shmbench measures what it costs to coordinate processes on this host: the
// primitives of this module beside what the host already offers (pthread
// mutexes, futexes, semaphores, pipes, file locks), in the same run and with
// the same method.
//
// The process that the user starts measures nothing. Workers are separate
// processes, pinned to their CPUs, that read their plan from a control page in
// a memfd, start at one absolute instant, and leave counters and histograms in
// the page, where they outlive a worker that is killed. Peers in C are one
// embedded file, compiled on demand; without a C compiler they are skipped.
//
// Every cell checks what it measures: the plain counter that a lock guards
// must equal the number of acquisitions, and tokens must arrive in sequence. A
// violation ends the program with status 3, whatever the speed.
//
// Figures are comparable within one run only. Cells are repeated, interleaved
// in a seeded random order, and compared as ratios with an interval.
package main
