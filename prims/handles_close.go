package prims

import (
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

// closeHandles closes the handles that were opened through a, an opening of an arena that is being
// closed. It also waits for handles that another goroutine is closing.
func closeHandles(a *arenakernel.Arena) {
	handles.Lock()
	var mine, others []*opening
	for _, on := range handles.of[a.Segment()] {
		for p := range on.open {
			switch {
			case p.a != a:
			case p.closing.CompareAndSwap(false, true):
				mine = append(mine, p)
			default:
				others = append(others, p)
			}
		}
	}
	handles.Unlock() // from here on register refuses handles of a, since a is closing
	closeAll(mine)
	for _, p := range others {
		// If a test has killed the participant, the goroutine that closes the handle may never end.
		if !a.Killed() {
			<-p.closed
		}
	}
}

// closeAll closes handles. The caller has set the field closing of each. Every step is done for all
// handles before the next step begins:
//
//  1. refuse: a wait that begins from now on ends with ErrClosed.
//  2. left: the present waits are woken until their calls have left. Such a call may run a function of the
//     caller, such as one of an Update or a Repair, and that function may use another of the handles. Its
//     waits then end, but it may still unlock what it has locked.
//  3. drain: calls that do not wait come to an end, or a bounded time passes.
//  4. leave: the words of the fast paths are replaced, and the object is closed.
func closeAll(all []*opening) {
	for _, p := range all {
		p.refuse()
	}
	busy := slices.Clone(all)
	for tries := 0; ; tries++ {
		busy = slices.DeleteFunc(busy, func(p *opening) bool { return p.left() })
		if len(busy) == 0 {
			break
		}
		if tries < 10 {
			runtime.Gosched()
		} else {
			time.Sleep(time.Millisecond)
		}
	}
	for _, p := range all {
		p.drain()
		p.leave()
		close(p.closed)
	}
}

// served is a call that does not wait but uses the words of a handle.
type served struct {
	queue *park.Queue
	stays *opening // nil if the Close of the handle waits for the call
}

// serve begins a call that does not wait. It panics if the handle has ended, but it succeeds while
// Close waits for a function of the caller. That function may be in the middle of an Update and may
// make such calls itself, and other goroutines may depend on these calls.
func (p *opening) serve(q *park.Queue) served {
	s, ok := p.tryServe(q)
	if !ok {
		panic(p.refusal)
	}
	return s
}

// tryServe does what the method serve does, for a call that can return an error. It reports false
// when the handle has ended.
func (p *opening) tryServe(q *park.Queue) (s served, ok bool) {
	if q.Enter() {
		return served{queue: q}, true
	}
	if !q.EnterStay() {
		return served{}, false
	}
	if !p.stayIfOpen() {
		q.ExitLasting()
		return served{}, false
	}
	return served{q, p}, true
}

// end ends the call.
func (s served) end() {
	if s.stays == nil {
		s.queue.Exit()
		return
	}
	s.stays.leave()
	s.queue.ExitLasting()
}

// loseHandles is called before an arena is unmapped. It marks the handles whose Close did not wait
// for a call that still needs the words.
func loseHandles(a *arenakernel.Arena) {
	handles.Lock()
	objects := handles.of[a.Segment()]
	delete(handles.of, a.Segment())
	maps.DeleteFunc(handles.common, func(key commonKey, _ *commonPart) bool { return key.segment == any(a.Segment()) })
	handles.Unlock()
	for _, on := range objects {
		for p := range on.open {
			p.lose()
		}
	}
}

// close is the Close of a handle.
func (p *opening) close(op string) error {
	if !p.closing.CompareAndSwap(false, true) {
		return &shmsync.Error{Op: op, Object: objectName(p.object), Err: shmsync.ErrClosed, Detail: closedHandle}
	}
	closeAll([]*opening{p})
	return nil
}
