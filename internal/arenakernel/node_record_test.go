//go:build linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// recordedKind is a kind whose changes are records. Its Complete calls completes.
const recordedKind Kind = 0x44524352 // "RCRD"

var completes func(o Object) bool

func init() {
	RegisterKind(KindOps{Kind: recordedKind, Version: 1, Complete: func(_ *Arena, o Object) bool { return completes(o) }})
}

// TestPreparedNodeOfDeadIsKept: a participant dies after it has prepared a node for a recorded queue.
// The record that puts the node on the queue may be committed and not complete. So the node is freed
// only if the kind of the object confirms that there is no such record.
func TestPreparedNodeOfDeadIsKept(t *testing.T) {
	var n *Node
	joins := func(Object) bool {
		n.Next().Store(RecordedLast << 32)
		return true
	}
	for _, c := range []struct {
		name     string
		kind     Kind
		version  uint16
		complete func(Object) bool
		kept     bool
	}{
		{name: "of an object whose last change is complete", kind: recordedKind, version: 1, complete: func(Object) bool { return true }},
		{name: "of an object that is corrupt", kind: recordedKind, version: 1, complete: func(Object) bool { return false }, kept: true},
		{name: "that a record puts on the queue", kind: recordedKind, version: 1, complete: joins, kept: true},
		{name: "of an unknown kind", kind: recordedKind + 1, version: 1, kept: true},
		{name: "of another version", kind: recordedKind, version: 2, kept: true},
		{name: "of a kind without records", kind: testKind},
	} {
		for _, of := range []string{"the dead", "another that is dead"} {
			t.Run(c.name+", of "+of, func(t *testing.T) {
				p := newNeighbours(2<<20, 4)
				a, b, other := p.join(1), p.join(2), p.join(3)
				completes = c.complete
				s := spec("x")
				s.Kind, s.Version = c.kind, c.version
				o, _, err := a.OpenObject(s)
				require.NoError(t, err)
				off, err := b.ClaimNode()
				require.NoError(t, err)
				n = b.node(off)
				n.SetObject(o.Offset)
				n.Swap(n.Load(), n.Load().With(NodeQueued))
				n.Stamp().Store(RecordedStamp | 1<<32)
				p.kill(b.self)
				if of == "the dead" {
					a.freeNodesOf(b.self)
				} else {
					p.kill(other.self)
					a.freeNodesOf(other.self)
				}
				want := ParticipantID(0)
				if c.kept {
					want = b.self
				}
				require.Equal(t, want, n.Owner())
			})
		}
	}
}

// TestNodeThatOwesIsKept: a participant was woken and died before it used the wake. Its node is kept until a
// record has marked it as removed from the queue. Then the node is freed, but not while a participant may
// still push it on a ready stack.
func TestNodeThatOwesIsKept(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b, other := p.join(1), p.join(2), p.join(3)
	completes = func(Object) bool { return true }
	s := spec("x")
	s.Kind, s.Version = recordedKind, 1
	o, _, err := a.OpenObject(s)
	require.NoError(t, err)
	off, err := b.ClaimNode()
	require.NoError(t, err)
	n := b.node(off)
	n.SetObject(o.Offset)
	n.Swap(n.Load(), n.Load().With(NodeQueued))
	n.Swap(n.Load(), n.Load().With(NodeResolved))
	n.Stamp().Store(RecordedStamp | 1<<32)
	n.Next().Store(RecordedOwes<<32 | 7)
	p.kill(b.self)
	require.Equal(t, []Offset{off}, a.NodesOfDead(o.Offset, b.self))
	a.freeNodesOf(b.self)
	require.Equal(t, b.self, n.Owner())
	const settled = RecordedRemoved<<32 | 8
	n.Next().Store(settled)
	other.BeginTell()
	a.ReapRemoved(off, b.self, settled)
	require.Equal(t, b.self, n.Owner(), "another participant may be about to push it")
	other.EndTell()
	a.ReapRemoved(off, b.self, settled-1)
	require.Equal(t, b.self, n.Owner(), "the record has stored another value in next")
	a.ReapRemoved(off, b.self, settled)
	require.Zero(t, n.Owner())
}

// TestNodeIsKeptUntilItsEndShows: a record puts the node of a dead participant on a queue, and the record of
// another participant takes it off again at once, because the wait was granted. Until the second record is
// complete, the node must not be freed: the other participant may still push it on a ready stack.
func TestNodeIsKeptUntilItsEndShows(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b, other := p.join(1), p.join(2), p.join(3)
	s := spec("x")
	s.Kind, s.Version = recordedKind, 1
	o, _, err := a.OpenObject(s)
	require.NoError(t, err)
	off, err := b.ClaimNode()
	require.NoError(t, err)
	n := b.node(off)
	n.SetObject(o.Offset)
	n.Swap(n.Load(), n.Load().With(NodeQueued))
	n.Stamp().Store(RecordedStamp | 1<<32)
	calls := 0
	completes = func(Object) bool {
		switch calls++; calls {
		case 1:
			other.BeginTell()
			n.Next().Store(RecordedGranted << 32)
		case 2:
			n.Swap(n.Load(), n.Load().With(NodeResolved))
		}
		return true
	}
	p.kill(b.self)
	a.freeNodesOf(b.self)
	require.Equal(t, b.self, n.Owner(), "the other participant has not pushed it yet")
	require.Equal(t, 2, calls)
	other.EndTell()
	a.freeNodesOf(b.self)
	require.Zero(t, n.Owner())
}
