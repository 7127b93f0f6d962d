// Package load runs in a worker: it generates the load of a cell, and measures it.
//
// RunWorker maps the control page of a cell, pins the threads, opens the subject in each thread, and runs the loop of
// the scenario. Each file has the loop of one scenario, the interface that the loop needs of its subject, and the
// function that checks the results of a run and derives the metrics. Collect calls that function in the parent.
package load
