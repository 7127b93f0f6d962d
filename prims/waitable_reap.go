package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: waitableKind, Version: waitableVersion, Repair: repairWaitable, Complete: completeWaitable, Check: checkWaitable,
		Inspect: inspectWaitable, UserData: hideWaitable, RecordWords: waitableRecordBytes,
	})
}

// ruled is a handle on a Waitable in a process that has its rules.
type ruled interface {
	handle
	reapDead()
}

// repairWaitable undoes the claims of the dead participant, if this process has opened the object and so has its
// rules. Otherwise it only completes the last change, and returns false if the dead participant has claims. The
// processes that have the rules then undo the claims.
func repairWaitable(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) bool {
	if x := openRuled(a, o); x != nil && x.opened().stayIfOpen() {
		defer x.opened().leave()
		x.reapDead()
		return true
	}
	x, ok := bareWaitable(a, o)
	if !ok {
		return false
	}
	x.completeBare()
	for h := range x.everyHold() {
		if !h.free() && a.Reaps(dead, h.participant()) {
			return false
		}
	}
	return true
}

// openRuled returns a handle of this process on o, or nil if there is none.
func openRuled(a *arenakernel.Arena, o arenakernel.Object) ruled {
	handles.Lock()
	defer handles.Unlock()
	if on := handles.of[a.Segment()][o.Offset]; on != nil {
		for _, h := range on.open {
			if h, ok := h.(ruled); ok {
				return h
			}
		}
	}
	return nil
}

// bareWaitable makes the handle of a reaper or a tool, which has no rules. ok is false if the object is so damaged
// that no process can open it.
func bareWaitable(a *arenakernel.Arena, o arenakernel.Object) (x *waitableCore, ok bool) {
	shape, ok := bareShape(a, o)
	if !ok {
		return nil, false
	}
	x = new(waitableCore)
	return x, x.openCore(a, o, shape, true) == nil
}

// bareShape returns the shape of a Waitable without the type S, from the size of the body. ok is false if no Waitable has
// a body of that size.
func bareShape(a *arenakernel.Arena, o arenakernel.Object) (shape waitableShape, ok bool) {
	least := waitableShapeOf(a, 0).size
	if o.Size < least {
		return shape, false
	}
	shape = waitableShapeOf(a, uintptr(o.Size-least))
	return shape, shape.size == o.Size
}

// completeWaitable completes the last change, if the process that made the change has not completed it.
func completeWaitable(a *arenakernel.Arena, o arenakernel.Object) bool {
	x, ok := bareWaitable(a, o)
	return ok && x.completeBare()
}

// reapDead undoes the claims of dead participants and serves the queue. It does not wait for the private lock, because
// a goroutine of this process may have it for long, in a rule. In that case, that goroutine reaps as
// soon as it has released the lock; see reapMissed.
func (x *Waitable[S, E]) reapDead() {
	if !x.private.TryLock() {
		x.missed.Store(true)
		// Either this TryLock succeeds, or the goroutine that has the lock calls reapMissed later, which finds that
		// the flag missed is set.
		if !x.private.TryLock() {
			x.completeBare()
			return
		}
	}
	defer x.reapMissed()
	b := takeWakes()
	defer x.wake(b)
	defer x.private.Unlock()
	x.reapAside(&x.scratch, b)
}

// reapMissed reaps if reapDead found that a goroutine of this process had the private lock. Each goroutine calls it
// after it has released the lock.
func (x *Waitable[S, E]) reapMissed() {
	if x.missed.Load() && x.missed.Swap(false) {
		x.reapDead()
	}
}

// reapAside undoes the claims of dead participants and serves the queue. Both run rules, so reapAside does both in a
// separate goroutine. The caller holds x.private.
func (x *Waitable[S, E]) reapAside(c *recordedChange, b *wakes) {
	if !x.rulesAside(func() {
		x.reap(c, b)
		x.resolve(c, b)
	}) {
		x.unreaped.Store(true)
		x.refuseAll(c, b)
	}
}

// resolveAside calls resolve in a separate goroutine, because resolve runs rules. The caller holds x.private.
func (x *Waitable[S, E]) resolveAside(c *recordedChange, b *wakes) {
	if !x.rulesAside(func() { x.resolve(c, b) }) {
		x.refuseAll(c, b)
	}
}

// reapIfDue reaps if a participant has died since the last reap.
func (x *Waitable[S, E]) reapIfDue() {
	if x.reapDue() && !x.lost() {
		x.reapDead()
	}
}

// check is called ten times a second while a goroutine of this process waits, and after each death. It completes what
// a dead or a stopped process has left undone.
func (x *Waitable[S, E]) check() {
	x.completeBare() // the last change may be a grant that takes the last wait off the queue
	dead := x.reapDue()
	for h := range x.everyHold() {
		if !dead && !h.free() {
			// The process that marked the participant dead may have been stopped before it counted the death.
			n := h.participant()
			dead = n != 0 && x.a.Dead(n)
		}
	}
	switch {
	case dead:
		x.reapDead()
	case valueIn(x.first) != 0 && x.private.TryLock():
		defer x.reapMissed()
		b := takeWakes()
		defer x.wake(b)
		defer x.private.Unlock()
		x.resolveAside(&x.scratch, b)
	}
}

// reap takes the waits of dead participants off the queue, and then undoes the claims of these participants. Claims
// that a participant had not accepted are undone at once. The other claims are undone when the process of the
// participant has ended. The caller holds x.private.
func (x *Waitable[S, E]) reap(c *recordedChange, b *wakes) {
	x.beginReap(c, b) // if it fails, a peer has overwritten the queue; the claims can be undone nevertheless
	lost, unused := x.rules.OnDeath, x.rules.Undo
	if lost == nil {
		lost = x.rules.Release
	}
	if unused == nil {
		unused = x.rules.Release
	}
	if unused == nil {
		unused = lost
	}
	if lost == nil {
		lost = unused
	}
	if lost == nil {
		return // claims are never undone
	}
	if !x.guarded(c, b, func() {
		for h := range x.everyHold() {
			for x.undoOne(c, b, h, lost, unused) {
			}
		}
	}) {
		x.unreaped.Store(true) // so the first reap after a Recover undoes the claims
	}
}

// undoOne undoes one of the claims that the hold h counts for a dead participant. It calls the function unused if the
// wait of the participant had not accepted the claim, and otherwise the function lost. It reports whether h may count
// more claims that have to be undone. If other processes change x all the time, undoOne leaves the claim to the next
// reap.
func (x *Waitable[S, E]) undoOne(c *recordedChange, b *wakes, h holdPlace, lost, unused func(s *S, e E)) (more bool) {
	var tries attempts
	defer x.over(&tries)
	for until := x.until(); !h.free() && x.absent(h.participant()); {
		// The loop repeats only if another call has changed the Waitable.
		if x.overtaken >= until {
			x.unreaped.Store(true)
			return false
		}
		x.again(&tries)
		if _, err := x.copyState(c, b, &x.copied, &tries); err != nil {
			return false
		}
		// The words that this call reads from here on belong to the copied state if the commit word stays the same. The
		// field accepted is an exception: a living participant changes the field without a change of the commit word.
		// So this call reads the field after it has found the participant dead.
		of, extra, count := h.participant(), h.extra(), h.held()
		dead := !h.free() && x.absent(of)
		accepted := uint32(h.accepted.Load())
		n := h.grantedBeyond(accepted)
		if x.held() {
			n = min(n, count)
		}
		rule := lost
		switch {
		case x.load() != c.c:
			x.overtaken++
			continue
		case x.lostIn(c) != 0:
			x.unreaped.Store(true) // as in reap
			return false
		case !dead:
			return false
		case n > 0:
			rule, n = unused, n-1
		case count == 0: // the process has released claims that were not accepted, or a peer has overwritten the counts
			x.setCount(c, h, 0)
			x.setGranted(c, h, accepted)
			_, err := x.end(c, b)
			return err == nil
		case !x.a.Gone(of):
			x.unreaped.Store(true) // so the next reap tries again
			return false
		}
		rule(&x.copied, unpackExtra[E](extra))
		x.put(c, &x.copied)
		x.setCount(c, h, max(count, 1)-1)
		x.setGranted(c, h, accepted+n)
		if ok, err := x.end(c, b); ok || err != nil {
			return err == nil
		}
	}
	return false
}

func checkWaitable(a *arenakernel.Arena, o arenakernel.Object) error {
	x, ok := bareWaitable(a, o)
	if !ok {
		return wrongKind("waitable.check", o, waitableKind, waitableVersion)
	}
	if s := valueIn(&x.words.stopped); s > 1 {
		return x.fail("waitable.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("stopped is %d", s))
	}
	if n := valueIn(&x.words.current); x.image(n) == nil {
		return x.fail("waitable.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("the valid image is %d, and there is no such image", n))
	}
	all := x.slots.load()
	for _, s := range all.all {
		if n := s.record.hold.participant(); n != 0 && n.Slot() != s.slot {
			return x.fail("waitable.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("the hold of slot %d counts claims of slot %d", s.slot, n.Slot()))
		}
	}
	if all.err != nil {
		return all.err
	}
	_, err := x.findBlocks()
	return err
}
