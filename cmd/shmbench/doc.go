// Shmbench measures what it costs to coordinate processes on this host. It compares the
// primitives of this module with those that the host offers (pthread mutexes, futexes,
// semaphores, pipes, file locks), in the same run and with the same method.
//
// The process that the user starts measures nothing. Workers are separate processes, pinned to
// their CPUs. They read their plan from a control page in a memfd, start at one absolute instant,
// and leave counters and histograms in the page, where these survive a worker that is killed.
// Peers in C are one embedded file, compiled on demand; without a C compiler they are skipped.
//
// Every cell checks what it measures: the plain counter that a lock guards must equal the number
// of acquisitions, and tokens must arrive in sequence. A violation ends the program with status
// 3, however fast the subject is.
//
// Figures are comparable only within one run. The repetitions of cells are interleaved in a
// seeded random order, and compared as ratios with an interval.
package main
