// Package bars has the promises of this project about speed.
//
// A bar is a limit for a metric of a subject, or for the ratio of the metric to that of a peer in the same run. Judge
// applies the bars to the results of a run.
package bars
