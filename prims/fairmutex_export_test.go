//go:build linux

package prims

import (
	"context"
	"sync/atomic"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// eachQueued calls g for each wait in the queue, of any process. All these waits were in the queue at the same moment.
func (f *FairMutex) eachQueued(g func(w wait)) {
	f.private.Lock()
	defer f.private.Unlock()
	x, b := &f.scratch, takeWakes()
	defer f.wake(b)
	for {
		if f.begin(x, b) != nil {
			return
		}
		var all []wait
		v := valueIn(f.first)
		for v >= arenakernel.RecordedFirst {
			n, err := f.a.NodeAt(arenakernel.Offset(v) * linkUnit)
			if err != nil {
				return
			}
			all = append(all, wait{arenakernel.Offset(v) * linkUnit, n})
			v = valueIn(n.Next())
		}
		if f.load() == x.c {
			for _, w := range all {
				g(w)
			}
			return
		}
	}
}

// Queued returns how many waits are in the queue, of all processes.
func (f *FairMutex) Queued() (n int) {
	f.eachQueued(func(w wait) {
		if f.waiting(w) {
			n++
		}
	})
	return n
}

// Asleep returns how many waits in the queue sleep in the kernel or are parked, of all processes.
func (f *FairMutex) Asleep() (n int) {
	f.eachQueued(func(w wait) {
		if w.State() != arenakernel.NodeQueued {
			n++
		}
	})
	return n
}

// Waiters returns how many goroutines of this process wait.
func (f *FairMutex) Waiters() int { return f.turns.Waits() }

// SharesTurns reports whether two handles have the same Turns.
func (f *FairMutex) SharesTurns(g *FairMutex) bool { return f.turns == g.turns }

// Ended reports whether Close has made the calls of the handle fail.
func (f *FairMutex) Ended() bool { return f.opening.ended.Load() }

// StopHandles blocks opens and closes of handles in this process, until the caller calls the result.
func StopHandles() (resume func()) {
	handles.Lock()
	return handles.Unlock
}

// Commons returns how many objects of the arena have a common part in this process, which all handles on the object
// share.
func Commons(a *arena.Arena) (n int) {
	handles.Lock()
	defer handles.Unlock()
	for key := range handles.common {
		if key.segment == any((*arenakernel.Arena)(a).Segment()) {
			n++
		}
	}
	return n
}

// Object returns the object on which f is a handle.
func (f *FairMutex) Object() arenakernel.Object { return f.object }

// LockStamped does what LockContext does, and also returns the place of the call in the order of arrival. The place is
// 0 if the call did not wait, or if it was granted the lock before LockStamped could read the place.
func (f *FairMutex) LockStamped(ctx context.Context) (stamp uint64, err error) {
	if !f.queue.Enter() {
		return 0, f.closedError()
	}
	defer f.queue.Exit()
	if f.lockFast() {
		return 0, nil
	}
	s, err := f.arrive(ctx, f.turns)
	if s == nil {
		return 0, err
	}
	stamp = s.Node.Stamp().Load() << 1 >> 33
	return stamp, f.await(ctx, s)
}

// Body returns the offset and the length of the words of f.
func (f *FairMutex) Body() (off, size uint64) { return uint64(f.object.Body), f.object.Size }

// EachNode calls f for each node on a queue of an object, with four words of the node: "next", "wanted", "stamp" and
// "extra". The parameter body is the offset of the body of the object.
func EachNode(a *arena.Arena, body uint64, f func(words [4]*atomic.Uint64)) {
	for o := range a.Objects() {
		if uint64(o.Body) == body {
			(*arenakernel.Arena)(a).EachNode(o.Offset, func(_ arena.Offset, n *arenakernel.Node) {
				f([4]*atomic.Uint64{n.Next(), n.Wanted(), n.Stamp(), n.Extra()})
			})
		}
	}
}

// ParkedNodes returns how many goroutines, of all processes, are parked while they wait for the
// object at o.
func ParkedNodes(a *arena.Arena, o arena.Offset) (n int) {
	(*arenakernel.Arena)(a).EachNode(o, func(_ arena.Offset, node *arenakernel.Node) {
		if node.State() == arenakernel.NodeParked {
			n++
		}
	})
	for _, w := range (*arenakernel.Arena)(a).WaitsOf(arenakernel.Object{Offset: o}) {
		if w.Want == nil && w.How == arenakernel.WaitParked && (w.At == counterPollerOff || w.At == queueItemsOff+queuePollerOff || w.At == eventcountStateOff+24 || w.At == sequencerCellsOff+tokenCellBytes+tokenCellPollerOff) {
			// Each of these offsets is the word poller of a WaitGroup or a Latch, of the items of a Queue, of an eventcount (24
			// bytes behind its state), or of token 1 of a Sequencer.
			n += int(w.Count)
		}
	}
	return n
}

// TakeOpenBack is the first step of a reaper without a slot record: it takes the lock back from a dead holder if the
// owner word is open. The result is true if the reaper needs a record to take the lock back.
func (f *FairMutex) TakeOpenBack() bool { return f.takeOpenBack() }

// SeenBeside returns the state of f as State finds it. Each time it has read the words of f, it calls the function in
// its parameter.
func (f *FairMutex) SeenBeside(between func()) (state string) {
	_, o := f.stateSeen(func() (recordedWord, ownerWord) {
		v := fairWord(f.owner.Load())
		o := f.stateOf(v)
		between()
		return v, o
	})
	return o.String()
}

// ChangeTag changes the tag of the owner word, and not its value, as a peer may do.
func (f *FairMutex) ChangeTag() { f.words.owner.Add(1) }

// OwnerValue returns the value of the owner word.
func (f *FairMutex) OwnerValue() uint32 { return valueIn(&f.words.owner) }

// OverwriteOwner stores a value into the owner word, as a peer may do.
func (f *FairMutex) OverwriteOwner(v uint32) { f.words.owner.Store(uint64(makeRecorded(v, 0))) }

// QueuedNodes returns the nodes of the waits in the queue.
func (f *FairMutex) QueuedNodes() (nodes []*arenakernel.Node) {
	f.eachQueued(func(w wait) { nodes = append(nodes, w.Node) })
	return nodes
}

// SetOpenOwner makes n the holder. The owner word becomes open, and gets another tag.
func (f *FairMutex) SetOpenOwner(n arenakernel.ParticipantID) {
	f.words.owner.Store(uint64(makeRecorded(uint32(ownerOpened(makeOwner(kindHeld, n))), uint32(f.words.owner.Load())+1)))
}

// ReapOpen takes an open lock back from a dead holder.
func (f *FairMutex) ReapOpen() { f.takeOpenBack() }
