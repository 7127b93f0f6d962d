// Package stats counts latencies and compares figures.
//
// The counters of a histogram lie in shared memory: Record adds to them, and NewHist makes an HDR
// histogram of those of several threads. An Interval is a figure with the range that it is known
// to lie in. Quantile gives no figure where too few samples lie above it.
package stats
