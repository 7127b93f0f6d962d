package arena

import (
	"fmt"
	"sync"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.enter.locked")
	_ = crashpoint.Register("arena.enter.joining")
	_ = crashpoint.Register("arena.enter.registered")
	_ = crashpoint.Register("arena.enter.before_live")
	_ = crashpoint.Register("arena.enter.live")
)

// enter takes a slot and makes this process live in it. The byte lock comes
// first, then the state word, then the robust list, then the alive words: so a
// slot in any phase but free whose byte nobody holds is that of a dead one, and
// an alive word never claims what the kernel does not know yet.
func (a *Arena) enter(label string) error {
	if f, err := a.seg.Reopen(); err == nil {
		a.lock = f
		a.caps |= capOFD
		if !shmsync.FeatureOFDLock.Have() {
			a.dropLock()
		}
	}
	i, generation, err := a.takeSlot()
	if err != nil {
		a.dropLock()
		return err
	}
	a.mySlot = i
	a.fillSlot(i, label)
	a.myName.Store(uint32(makeName(i, generation)))
	a.self = makeName(i, generation)

	ready := make(chan error)
	a.watcher.Add(1)
	go a.sentinel(ready)
	if err := <-ready; err != nil {
		a.casSlot(i, makeSlotWord(phaseJoining, generation), makeSlotWord(phaseFree, generation))
		a.dropLock()
		return err
	}
	a.ringWatchers()
	a.registerFence()
	return nil
}

func (a *Arena) dropLock() {
	if a.lock != nil {
		a.lock.Close()
		a.lock = nil
	}
	a.caps &^= capOFD
}

// takeSlot finds a free slot, buries the dead where there is none, and makes
// the slot joining.
func (a *Arena) takeSlot() (i int, generation uint32, err error) {
	for range 3 {
		for i := 1; i <= a.geo.slots; i++ {
			if generation, ok := a.trySlot(i); ok {
				return i, generation, nil
			}
		}
		if !a.buryAll() {
			break
		}
	}
	return 0, 0, a.fail("arena.open", shmsync.ErrNoSpace,
		fmt.Sprintf("all %d slots for participants are taken", a.geo.slots))
}

func (a *Arena) trySlot(i int) (generation uint32, ok bool) {
	w := a.slotState(i)
	if w.phase() != phaseFree || w.generation() >= maxGeneration {
		return 0, false
	}
	if a.lock != nil {
		if locked, err := shmsync.LockByte(a.lock, a.lockByte(i)); err != nil || !locked {
			return 0, false
		}
		crashpoint.Hit("arena.enter.locked")
	}
	next := makeSlotWord(phaseJoining, w.generation()+1)
	if !a.casSlot(i, w, next) {
		if a.lock != nil {
			shmsync.UnlockByte(a.lock, a.lockByte(i))
		}
		return 0, false
	}
	crashpoint.Hit("arena.enter.joining")
	return next.generation(), true
}

// lockByte is the byte of the file whose lock says that slot i is taken by
// somebody alive: the first of its record.
func (a *Arena) lockByte(i int) int64 { return int64(a.slot(i)) }

func (a *Arena) fillSlot(i int, label string) {
	id := selfIdentity()
	s := a.slot(i)
	a.u32(s + slotUndertaker).Store(0)
	a.u32(s + slotPID).Store(uint32(id.pid))
	a.u32(s + slotUID).Store(uint32(id.uid))
	a.u64(s + slotStart).Store(id.startTime)
	a.u64(s + slotPIDNS).Store(id.pidNS)
	a.u64(s + slotJoined).Store(uint64(time.Now().UnixNano()))
	copy(a.slice(s+slotBootID, 16), id.bootID[:])
	a.putLabel(s+slotLabel, label)
	a.u64(s + slotDied).Store(0)
	a.u64(s + slotReady).Store(0)
	for k := range announceCount {
		r := s + slotAnnounce + Offset(k*announceStride)
		a.u64(r + announceWord).Store(0)
	}
}

// putLabel writes a length byte and at most labelBytes bytes.
func (a *Arena) putLabel(off Offset, label string) {
	label = label[:min(len(label), labelBytes)]
	b := a.slice(off, 1+labelBytes)
	clear(b)
	copy(b[1:], label)
	b[0] = byte(len(label))
}

func (a *Arena) getLabel(off Offset) string {
	b := make([]byte, 1+labelBytes)
	copy(b, a.slice(off, 1+labelBytes))
	return string(b[1 : 1+min(int(b[0]), labelBytes)])
}

// becomeLive is the sentinel's part of entering.
func (a *Arena) becomeLive() error {
	i := a.mySlot
	tid := uint32(shmsync.ThreadID())
	if shmsync.FeatureRobustList.Have() {
		if l, err := shmsync.NewRobustList(); err == nil {
			l.Link(raw(a.u32(a.aliveWord(i, 0))), aliveWords)
			if l.Register() == nil {
				a.robust = l
				a.caps |= capRobust
			} else {
				l.Free()
			}
		}
	}
	crashpoint.Hit("arena.enter.registered")
	if a.robust == nil && a.lock == nil {
		return a.fail("arena.open", shmsync.ErrNotSupported,
			"neither robust lists nor byte locks work here, so nobody could tell this process's death")
	}
	if shmsync.FeaturePidfd.Have() {
		a.caps |= capPidfd
	}
	if shmsync.FeatureWaitV.Have() {
		a.caps |= capWaitV
	}
	s := a.slot(i)
	a.u32(s + slotTID).Store(tid)
	a.u32(s + slotCaps).Store(a.caps)
	for k := range aliveWords {
		// FUTEX_WAITERS always: without it the kernel marks but does not wake.
		a.u32(a.aliveWord(i, k)).Store(tid&shmsync.RobustTIDMask | shmsync.RobustWaiters)
	}
	crashpoint.Hit("arena.enter.before_live")
	joining := makeSlotWord(phaseJoining, a.self.Generation())
	if !a.casSlot(i, joining, joining.with(phaseLive)) {
		return a.fail("arena.open", shmsync.ErrCorrupt, "a peer took the slot away")
	}
	crashpoint.Hit("arena.enter.live")
	return nil
}

// fenceRegistered registers this process once.
var fenceRegistered = sync.OnceValue(shmsync.RegisterFence)

// registerFence makes this process a target of fences, in the background since
// it takes milliseconds, and then says so in its slot.
func (a *Arena) registerFence() {
	a.background.Go(func() {
		if fenceRegistered() != nil {
			return
		}
		a.u32(a.slot(a.mySlot) + slotCaps).Or(capFence)
		a.fenced.Store(true)
	})
}
