// Package stats counts latencies and compares figures.
//
// The counters of a histogram are in shared memory: Record increments them, and NewHist merges the counters of several
// threads into an HDR histogram. An Interval is a figure with a range. The field Kind says how the range was found, and
// so whether it contains the true value with a known confidence. Quantile returns no quantile if too few samples are
// larger than it.
package stats
