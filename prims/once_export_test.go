//go:build linux

package prims

// ReapRunner ends the turn of the runner, as a reaper does after the runner's death.
func (o *Once) ReapRunner() { o.leave(o.load()) }
