//go:build linux

package prims

import "github.com/shmsync/shmsync/arena"

// Overdue reports whether waits of s are to be ended.
func (s *Sequencer) Overdue() bool { return s.overdue() }

// LatchFree reports whether nobody holds the latch of s.
func (s *Sequencer) LatchFree() bool { return s.words.mon.latch.owner.Load() == 0 }

// Object is the object under s.
func (s *Sequencer) Object() arena.Object { return s.object }

// Object is the object under e.
func (e *Event) Object() arena.Object { return e.object }

// Spare is how many tokens of e came back from the dead and are not handed out.
func (e *Event) Spare() uint64 { return e.auto.words.spare.Load() }

// Unseen is how many tokens of e were handed out to participants that do not know it.
func (e *Event) Unseen() (n uint64) {
	for _, h := range e.auto.shares {
		n += h.unknown()
	}
	return n
}

// Queued is how many waits of all processes are queued in the object at off.
func Queued(a *arena.Arena, off arena.Offset) (n int) {
	a.EachNode(off, func(_ arena.Offset, node *arena.Node) {
		if queued(node.Load()) {
			n++
		}
	})
	return n
}

// Scribble overwrites the body of the object with bytes.
func Scribble(a *arena.Arena, o arena.Object, at uint64, b []byte) {
	for i := range b {
		if at+uint64(i) < o.Size {
			*arena.At[byte](a, o.Body+arena.Offset(at)+arena.Offset(i)) = b[i]
		}
	}
}
