package prims

import "github.com/shmsync/shmsync"

// pendingToken is a wait for a token that WaitAsync has begun. It belongs to a Pending.
type pendingToken struct {
	c    *tokenCell
	wait tokenWait
}

// async does what WaitAsync does.
func (s *Sequencer) async(token uint64) *Pending {
	wait := s.begin(token)
	if over, err := s.judge(&wait); over {
		return resolved(err)
	}
	c := s.cell(token)
	if c == nil {
		return resolved(s.opening.error("sequencer.wait"))
	}
	if err := c.enter(); err != nil {
		return resolved(err)
	}
	x := &pendingToken{c, wait}
	p := &Pending{op: "sequencer.wait", done: make(chan struct{}), source: x}
	x.wait.tell = p.told
	c.join(&x.wait)
	return p
}

// told ends the Pending, because its wait has left the token heap.
func (x *pendingToken) told(p *Pending) {
	p.end(x.c.outcome(&x.wait))
	x.c.leave()
}

// cancel ends the wait. If the token is reached, the wait succeeds instead.
func (x *pendingToken) cancel(p *Pending) bool {
	if !x.c.remove(&x.wait) {
		x.told(p)
		return false
	}
	defer x.c.leave()
	if over, err := x.c.s.judge(&x.wait); over {
		p.end(err)
		return false
	}
	p.end(failed(x.c.a, x.c.object, p.op, shmsync.ErrCanceled, nil, "it was cancelled"))
	return true
}
