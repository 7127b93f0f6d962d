// Package load is the life of a worker: it generates the load of a cell, and measures it.
//
// RunWorker joins the cell of a control page, pins and opens its threads, and runs the loop of the
// scenario in each. A file has the loop of one scenario, the interface that the loop needs of its
// subject, and the function that checks what a run left and makes metrics of it. Collect runs that
// function in the parent.
package load
