// Package stats counts latencies and compares figures.
//
// The counters of a histogram are in shared memory: Record adds to them, and NewHist makes an HDR
// histogram from those of several threads. An Interval is a figure with the range that is known
// to contain it. Quantile returns no figure if too few samples lie above it.
package stats
