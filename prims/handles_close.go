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

// closeHandles closes the handles that were opened through the arena a, which is being closed. It also waits
// for handles that another goroutine is closing.
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
	handles.Unlock() // from here on, the function register adds no handle of a, since a is closing
	closeAll(mine, slices.Concat(mine, others))
	for _, p := range others {
		// Do not wait if a test has made this participant dead: the goroutine that closes the handle may then
		// never end.
		if !a.Killed() {
			<-p.closed
		}
	}
}

// closeAll closes the handles in the parameter all. The caller has set the field closing of each of them. closeAll does
// each of these steps for all handles before it begins the next step:
//
//  1. refuse: a wait that begins from now on ends with ErrClosed.
//  2. left: the present waits are woken until their calls have left. Such a call may run a function of the
//     program, such as a Repair. If this function uses another handle in all, its waits for that handle end,
//     but it can still unlock what it has locked.
//  3. drain: calls that do not wait come to an end, or a bounded time passes.
//  4. letGo: the words of the fast paths are replaced, the wakes are made that late calls have left to Close, and the
//     object is closed.
//
// In step 2, closeAll also makes the wakes that late calls have left to Close. It also waits for the calls that have
// called stayIfOpen for a handle in the slice idle. A Close of the arena passes all handles of the arena in idle,
// and a Close of a handle passes none.
func closeAll(all, idle []*opening) {
	for _, p := range all {
		p.refuse()
	}
	busy := slices.Clone(all)
	for tries := 0; ; tries++ {
		busy = slices.DeleteFunc(busy, func(p *opening) bool { return p.left() })
		// A call may call stayIfOpen until it has left. So the method idle is called only when all calls have left.
		if len(busy) == 0 && !slices.ContainsFunc(idle, func(p *opening) bool { return !p.idle() && !p.a.Killed() }) {
			break
		}
		for _, p := range all { // while a call of one handle takes long, another handle may have wakes to make
			p.owed()
		}
		if tries < 10 {
			runtime.Gosched()
		} else {
			time.Sleep(time.Millisecond)
		}
	}
	for _, p := range all {
		p.drain()
		p.owed() // letGo would make these wakes later if a call still keeps the object open
		p.letGo()
		close(p.closed)
	}
}

// served is a call that does not wait but uses the words of a handle. Close waits for the call, or the call keeps
// the words in place.
type served struct {
	queue *park.Queue
	stays *opening // nil if Close waits for the call; otherwise the call has called keepIfOpen
}

// serve begins a call that does not wait. It panics if the handle has ended. While Close waits for a function of
// the program, such as one that an Update runs, the handle has not ended. So the function can still use the
// handle, and so can a goroutine for which the function waits.
func (p *opening) serve(q *park.Queue) served {
	s, ok := p.tryServe(q)
	if !ok {
		panic(p.refusal)
	}
	return s
}

// tryServe does what the method serve does, for a call that can return an error. If the handle has ended, it
// returns false.
func (p *opening) tryServe(q *park.Queue) (s served, ok bool) {
	if q.Enter() {
		return served{queue: q}, true
	}
	if !q.EnterStay() {
		return served{}, false
	}
	if !p.keepIfOpen() {
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
	s.stays.letGo()
	s.queue.ExitLasting()
}

// enterLate begins the last part of a call that has already taken effect. Before enterLate, Close does not wait for the
// call. A goroutine that has learned of the effect may close the handle and delete the object, and another object may
// get the memory. So between its effect and enterLate, the call only loads words.
//
// If enterLate returns true, Close waits until the call ends with Exit of q, a queue of the handle. If enterLate
// returns false, the Close of the handle has begun. The call then stores nothing and wakes nobody, because Close makes
// the wakes of the call; see the field owed.
//
//	the call                           the goroutine that closes the handle
//	effect, by a CAS                   learns of the effect
//	load: is a waiter announced?       the handle refuses calls
//	count itself                       wait until no call is counted
//	is the handle closing?             is a waiter announced? If so, wake
//	if not, wake
//
// Close loads the announcement after it has learned of the effect. So a waiter that announces itself after this load
// finds the effect by itself.
func enterLate(q *park.Queue) bool { return q.Enter() }

// loseHandles is called before an arena is unmapped. It marks the remaining handles as lost. These are handles
// whose Close has not waited for a call that still needs the words.
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

// The method close does what the Close of a handle does.
func (p *opening) close(op string) error {
	if !p.closing.Load() {
		p.mustNotCloseInside()
	}
	if !p.closing.CompareAndSwap(false, true) {
		return &shmsync.Error{Op: op, Object: objectName(p.object), Err: shmsync.ErrClosed, Detail: closedHandle}
	}
	closeAll([]*opening{p}, nil)
	return nil
}
