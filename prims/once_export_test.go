//go:build linux

package prims

// ReapRunner takes the turn from the runner, as a reaper does after its death.
func (o *Once) ReapRunner() { o.leave(o.load()) }
