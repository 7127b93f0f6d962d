package prims

import "github.com/shmsync/shmsync/internal/park"

func (c *spinCore) close() error { return c.opening.close(c.op + ".close") }

func (c *spinCore) queues() []*park.Queue {
	if c.rw == nil {
		return []*park.Queue{c.queue}
	}
	return []*park.Queue{c.queue, c.rw.gateQueue, c.rw.drainQueue}
}

func (c *spinCore) refuse() { park.Refuse(c.queues()...) }

func (c *spinCore) callsLeft() bool { return park.Left(c.queues()...) && c.calls.Load() == 0 }

// begin makes Close wait for a call that waits in two queues one after the other. Close waits until the call has
// called finish. begin returns false if the handle is being closed. begin counts the call in the field calls and not
// in a queue, because tools show each call that a queue counts as a wait.
func (c *spinCore) begin() bool {
	c.calls.Add(1)
	if c.opening.closing.Load() {
		c.calls.Add(-1)
		return false
	}
	return true
}

func (c *spinCore) finish() { c.calls.Add(-1) }

func (c *spinCore) end() {
	for _, q := range c.queues() {
		q.Close()
	}
}

// wakeOwed is called by Close. It makes the wakes that other calls had to make. These calls woke nobody, because the
// handle was being closed; see enterLate.
func (c *spinCore) wakeOwed() {
	if c.waited() && spinWord(c.state.Load()).free() {
		c.wakeWaited()
	}
	if c.rw != nil && c.rw.drained.Announced() && c.rw.nobodyReads() {
		c.rw.drained.WakeAll()
	}
}
