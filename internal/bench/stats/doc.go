// Package stats counts latencies and compares figures.
//
// The counters of a histogram are in shared memory: Record increments them, and NewHist merges the counters of several
// threads into an HDR histogram. An Interval is a figure with a range that contains the true value with a known
// confidence. Quantile returns no figure if too few samples lie above it.
package stats
