// Package stats counts latencies and compares figures.
//
// The counters of a histogram are in shared memory: Record increments them, and NewHist merges the counters of several
// threads into an HDR histogram. An Interval is a figure with a range. Its field Kind says how the range was found.
// Except for KindRange, the range contains the true value with a known confidence. Quantile returns no quantile if too
// few samples are larger than it.
package stats
