// Package load runs in a worker: it generates the load of a cell, and measures it.
//
// RunWorker joins the cell of a control page, pins its threads, opens the subject in each, and
// runs the loop of the scenario. Each file has the loop of one scenario, the interface that the
// loop needs of its subject, and the function that checks the results of a run and derives
// metrics. Collect runs that function in the parent.
package load
