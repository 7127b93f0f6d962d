// Package bars has the promises of this project about speed.
//
// A bar is a limit for a metric of a subject. If the bar has a peer, the limit is for the subject's metric divided by
// the peer's metric in the same run. Judge applies the bars to the results of a run.
package bars
