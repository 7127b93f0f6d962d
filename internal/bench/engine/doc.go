// Package engine runs the cells of a plan.
//
// The parent measures nothing. For each repetition it creates a control page and the memory of the subject, starts
// the workers, tells them when to begin and when to stop, and collects their results. If a worker hangs, the parent
// makes it print its stacks and kills it. The plan continues with the next cell.
package engine
