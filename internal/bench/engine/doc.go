// Package engine runs the cells of a plan.
//
// The parent measures nothing. For each repetition it makes a control page and the memory of the
// subject, starts the workers, tells them when to begin and when to stop, and collects what they
// left. A worker that hangs is asked for its stacks and killed; the plan goes on.
package engine
