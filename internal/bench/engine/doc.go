// Package engine runs the cells of a plan.
//
// The parent measures nothing. For each repetition it makes a control page and the memory of the
// subject, starts the workers, tells them when to begin and when to stop, and collects their
// results. The parent makes a hung worker print its stacks and kills it; the plan goes on.
package engine
