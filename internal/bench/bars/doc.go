// Package bars has the promises of this project about speed.
//
// A bar is a metric of a subject, as a ratio to that of a peer in the same run, and a limit. Judge
// holds the bars against the results of a run.
package bars
