//go:build linux

package prims

// ReapRunner ends the turn of the runner, as a reaper does after the runner's death.
func (o *Once) ReapRunner() { o.leave(o.load()) }

// EndTurnWithoutWake ends the turn of the runner, like a reaper that has not made its wakes yet.
func (o *Once) EndTurnWithoutWake() bool {
	w := o.load()
	return o.swap(w, w.left())
}
