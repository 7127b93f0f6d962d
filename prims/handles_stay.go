package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/park"
)

// keepIfOpen keeps the object open and its words in place until the caller calls the method letGo. It is for a call
// that has to clean up but for which no Close waits. If the opening has ended, keepIfOpen returns false. In that case
// the caller must not call letGo, which would end the opening twice.
func (p *opening) keepIfOpen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keep()
}

func (p *opening) keep() bool { // guarded by: mu
	if p.needed == 0 || p.lost {
		return false
	}
	p.needed++
	return true
}

// Each call of letGo ends what one call of keepIfOpen has begun. The Close of the handle calls letGo, too. The last of
// these calls ends the opening.
func (p *opening) letGo() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop()
}

func (p *opening) drop() { // guarded by: mu
	if p.needed--; p.needed == 0 && !p.lost {
		p.ended.Store(true)
		p.end()
		p.owed()
		p.leaveCommon() // before CloseObject, after which a peer may delete the object
		p.a.CloseObject(p.object)
		p.forget() // last, because the arena stays mapped until then
	}
}

// stayIfOpen does what the method keepIfOpen does, for a call that runs a function of the program. Close of the
// handle does not wait for the call, because the function may take long, and may itself close the handle. Close of
// the arena waits: if this process left the arena during the call, its peers would take back what the function
// needs. The caller ends the call by the method leave.
func (p *opening) stayIfOpen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.keep() {
		return false
	}
	p.awaited++
	return true
}

// stayToRun does what the method stayIfOpen does, but returns false if a Close of the handle or the arena has
// begun.
//
//	stayToRun              Close of the arena
//	counts the call        stores closing
//	reads closing          reads the count
//
// In every order of these four steps, the call is refused or Close waits for it.
func (p *opening) stayToRun() bool {
	if !p.stayIfOpen() {
		return false
	}
	if p.closing.Load() {
		p.leave()
		return false
	}
	return true
}

// leave ends what one call of stayIfOpen or stayToRun has begun.
func (p *opening) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop()
	p.awaited-- // after drop, because Close of the arena goes on when it reads 0
}

// idle reports whether all calls that Close of the arena waits for have called leave; see stayIfOpen.
func (p *opening) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.awaited == 0
}

// leaveStay calls leave, or does nothing if this process is leaving the arena. That is possible here only if a test
// has killed the participant, because otherwise Close of the arena waits for the call. q is a queue of the handle.
func (p *opening) leaveStay(q *park.Queue) {
	if q.EnterStay() {
		defer q.ExitLasting()
		p.leave()
	}
}

// letGoLate calls letGo, unless this process is leaving the arena. q is a queue of the handle. Neither Close of the
// handle nor the end of the arena waits until letGoLate is called.
func (p *opening) letGoLate(q *park.Queue) {
	if q.EnterStay() {
		defer q.ExitLasting()
		p.letGo()
	}
}

// lose records that the arena is about to be unmapped, even though calls of this handle may still use it.
func (p *opening) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = true
	p.ended.Store(true)
}

// lostWords returns an error if the words of the object are no longer those of this process, because it has left the
// arena or a test has killed it. Otherwise it returns nil.
func (p *opening) lostWords(op string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.lost && !p.a.Killed() {
		return nil
	}
	return p.refused(op)
}

// overwritten says that a word has changed to o although only this process may change the word.
func overwritten(o fmt.Stringer) string {
	return "it was overwritten during the repair, and is now " + o.String()
}
