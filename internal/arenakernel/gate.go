package arenakernel

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// gateByte is the byte of the file whose lock is the arena gate. A process takes the gate before it
// begins an epoch or removes the arena. The locks of the bytes before it belong to slots. All these
// bytes must keep their meaning in every later layout.
const gateByte = 1 << 62

var (
	_ = crashpoint.Register("arena.gate.admitted")
	_ = crashpoint.Register("arena.gate.taken")
	_ = crashpoint.Register("arena.gate.claiming")
	_ = crashpoint.Register("arena.gate.visited")
	_ = crashpoint.Register("arena.gate.claimed")
	_ = crashpoint.Register("arena.gate.begun")
	_ = crashpoint.Register("arena.gate.opened")
)

// errMoved says that the arena's path no longer leads to its file.
var errMoved = errors.New("the name leads elsewhere")

func (a *Arena) epochWord() epochWord { return epochWord(a.u64(hdrEpoch).Load()) }

func (a *Arena) casEpoch(from, to epochWord) bool {
	return a.u64(hdrEpoch).CompareAndSwap(uint64(from), uint64(to))
}

func (a *Arena) casAdmission(i int, from, to uint32) bool {
	return a.u32(a.slot(i)+slotAdmission).CompareAndSwap(from, to)
}

// presence says whether a participant is in the arena, that is, whether it has been admitted and
// has not left.
type presence int

const (
	isOut   presence = iota
	isDying          // the participant is dead, but its threads may still store to the arena
	isIn
)

// presenceOf returns the presence of the participant in slot i. The slot of this process itself
// counts as isOut.
func (a *Arena) presenceOf(i int) presence {
	for range 8 { // each further iteration means that the slot has changed
		w := a.slotState(i)
		switch {
		case a.self == 0 && w.phase() == phaseDead && !a.foundGone(i, w) && !a.ended(i):
			return isDying // OnFirst runs only after a dying participant has ended
		case i == a.mySlot, w.phase() != phaseLive && w.phase() != phaseLeaving:
			return isOut
		case a.u32(a.slot(i)+slotAdmission).Load() != admissionIn:
			if a.slotState(i) == w {
				return isOut
			}
		case !a.surveyDead(i, w):
			if a.slotState(i) == w {
				return isIn
			}
		case a.self == 0: // a process without a slot does not mark slots
			if a.foundGone(i, w) || a.ended(i) {
				return isOut
			}
			return isDying
		default:
			a.mark(i, w)
			if a.slotState(i) == w {
				return isDying
			}
		}
	}
	return isDying
}

// anyIn returns the slot of a participant that is in the arena, or 0. If it returns 0, the result
// named dying reports whether a participant has died whose process has not ended yet.
func (a *Arena) anyIn() (slot int, dying bool) {
	for i := 1; i <= a.geo.slots; i++ {
		switch a.presenceOf(i) {
		case isIn:
			return i, false
		case isDying:
			dying = true
		}
	}
	return 0, dying
}

// occupied reports whether a participant is in the arena, or runs OnFirst and will be in the arena
// after that.
func (a *Arena) occupied() bool {
	for i := 1; i <= a.geo.slots; i++ {
		w := a.slotState(i)
		first := w.phase() == phaseLive && a.u32(a.slot(i)+slotAdmission).Load() == admissionFirst && !a.surveyDead(i, w)
		if first || a.presenceOf(i) == isIn {
			return true
		}
	}
	return false
}

// lockGate tries to take the gate, that is, the file lock on gateByte. It reports whether it got
// the gate. The error is not nil if the kernel refuses the lock although no process has it.
func (a *Arena) lockGate() (locked bool, err error) {
	if locked, err = shmsync.LockByte(a.lock, gateByte); err != nil {
		return false, a.fail("arena.open", err, "could not take the gate, which is a byte lock")
	}
	return locked, nil
}

func (a *Arena) unlockGate() { shmsync.UnlockByte(a.lock, gateByte) }

// claimEpoch tries to claim the arena, so that this process can begin an epoch or remove the arena.
// It succeeds only if no participant is in the arena. After that, no participant is admitted until
// this process ends the claim. The caller has the gate.
//
//	claimant                             joiner, whose slot is live
//	stores claiming                      reads the epoch word
//	refuses all pending joiners          finds a participant that is in
//	checks whether a participant is in   becomes in, if it is not refused
//
// The proof: let Y be the first joiner that becomes in after the claimant checked its slot. Either
// Y was refused, or its slot became live after the check. In both cases, Y reads the epoch word
// after the check, and finds claiming. Y continues only if it ends the claim, and then the last CAS
// of the claimant fails. A participant that became in before the check is found by the check.
//
// The parameter p records which dead participants the joiner has reaped. The claim also fails if p
// does not record the reap of every dead participant. A process that removes the arena has no slot
// and reaps no participant, so it passes nil for p.
func (a *Arena) claimEpoch(p *preparation) (w epochWord, in int, dying bool) {
	old := a.epochWord()
	w = old.claim(a.self)
	if old.phase() == epochRemoved || !a.casEpoch(old, w) {
		return 0, 0, false
	}
	crashpoint.Hit("arena.gate.claiming")
	for i := 1; i <= a.geo.slots; i++ {
		if i != a.mySlot && a.slotState(i).phase() == phaseLive {
			a.casAdmission(i, admissionPending, admissionRefused)
		}
		is := a.presenceOf(i)
		if is == isIn {
			a.casEpoch(w, w.end())
			return 0, i, false
		}
		dying = dying || is == isDying
	}
	if dying || p != nil && !a.prepared(p) {
		if old.phase() == epochClaimed {
			a.casEpoch(w, old) // the previous claimant is dead, and its OnFirst may have changed the arena
		} else {
			a.casEpoch(w, w.end())
		}
		return 0, 0, dying
	}
	crashpoint.Hit("arena.gate.visited")
	// lin: from here on this process is alone
	if claimed := w.with(epochClaimed); a.casEpoch(w, claimed) {
		return claimed, 0, false
	}
	return 0, 0, false // a joiner has ended this claim
}

// admit makes this process, whose slot is live, a participant that is in the arena. This process then
// is in the arena together with other participants, or is the first participant of a new epoch. The
// parameter called named is true if the arena was opened by a name. If this name leads to another
// file, the error Is errMoved. If ctx ends before another process has finished its OnFirst, admit
// returns the error of ctx.
//
// A process that is stopped in admit delays other joiners only while it has the gate. It takes the
// gate only after it has reaped all dead participants and has found no participant in the arena. If
// a participant is admitted before this process has claimed the epoch, later joiners end the claim,
// and need no gate.
func (a *Arena) admit(ctx context.Context, o *Options, named bool) error {
	if a.lock == nil {
		return a.admitUngated(ctx, o, named)
	}
	mine := a.u32(a.slot(a.mySlot) + slotAdmission)
	var p preparation
	for pause := minGatePause; ; {
		mine.CompareAndSwap(admissionRefused, admissionPending)
		// The epoch word must be read after the compare-and-swap above. Otherwise this process
		// could miss that it was refused.
		// sync(arena.epoch): acquire
		w := a.epochWord()
		if w.phase() == epochRemoved {
			return a.dropFurtherName(named)
		}
		in := 0
		if w.phase() != epochClaimed {
			in, _ = a.anyIn()
		}
		switch {
		case in != 0:
			if w.phase() == epochClaiming && !a.casEpoch(w, w.end()) {
				break
			}
			if mine.CompareAndSwap(admissionPending, admissionIn) {
				crashpoint.Hit("arena.gate.admitted")
				if named && a.moved() {
					return errMoved
				}
				return nil
			}
			if err := a.checkAdmission(mine.Load()); err != nil {
				return err
			}
		case a.gateBusy():
			// Do nothing. While another process runs OnFirst, many joiners may wait here, so they
			// do not read the slots each time.
		case a.prepare(&p):
			locked, err := a.lockGate()
			if err != nil {
				return err
			}
			if !locked {
				break
			}
			crashpoint.Hit("arena.gate.taken")
			done, err := a.first(&p, o, named)
			if err != nil {
				// Keep the gate. The method leave releases it together with the byte lock. Until
				// then, changes of this process may remain in the arena, and the next process that
				// gets the gate must not find them.
				return err
			}
			a.unlockGate()
			if done {
				return nil
			}
		}
		if err := sleepContext(ctx, pause); err != nil {
			why := a.whoClaims()
			if p.waiting && !a.gateBusy() {
				why = "the process of a participant that died does not end"
			}
			return a.fail("arena.open", err, why)
		}
		pause = min(2*pause, maxGatePause)
	}
}

// checkAdmission returns an error if s, the admission word of a joiner that could not be admitted,
// has an impossible value.
func (a *Arena) checkAdmission(s uint32) error {
	if s != admissionPending && s != admissionRefused {
		return a.fail("arena.open", shmsync.ErrCorrupt, fmt.Sprintf("a peer changed the admission of this process to %d", s))
	}
	return nil
}

const (
	minGatePause = 50 * time.Microsecond
	maxGatePause = 10 * time.Millisecond
)

// moved reports whether the arena's path leads to another file.
func (a *Arena) moved() bool {
	s := a.pathState()
	return s == PathRemoved || s == PathReplaced
}

// The method called first makes this process the first participant of an epoch, unless another
// participant is in the arena. This process has the gate and has reaped all dead participants.
func (a *Arena) first(p *preparation, o *Options, named bool) (done bool, err error) {
	if a.epochWord().phase() == epochRemoved || named && a.moved() {
		return false, errMoved
	}
	old := a.epochWord()
	if old.phase() != epochClaimed {
		if i, _ := a.anyIn(); i != 0 {
			return false, nil
		}
	}
	if err := a.askForBoot(); err != nil {
		return false, a.fail("arena.open", err, "could not read the ID of this boot of the computer")
	}
	w, _, _ := a.claimEpoch(p)
	if w == 0 {
		return false, nil
	}
	a.u32(a.slot(a.mySlot) + slotAdmission).Store(admissionFirst)
	crashpoint.Hit("arena.gate.claimed")
	a.repairLate(p)
	e, began := a.beginEpoch(w)
	if o.replaces(a, e, old.untouched() && a.nobodyBegan()) {
		if !named {
			return false, a.fail("arena.open", shmsync.ErrIncompatible, "an arena without a name cannot be made anew")
		}
		if again, err := a.unlinkClaimed(w); err != nil || again {
			a.u32(a.slot(a.mySlot) + slotAdmission).Store(admissionPending)
			return false, err
		}
		return false, errMoved
	}
	if began.torn {
		return false, a.fail("arena.open", shmsync.ErrIncompatible,
			"the computer was started again while processes were in, so pages of the file may be of different times; Recreate with RecreateUnclean replaces it")
	}
	if o.OnFirst != nil {
		if err := a.runHook(o.OnFirst, e); err != nil {
			return false, a.fail("arena.open", err, "OnFirst failed")
		}
	}
	a.u64(hdrEpochBegan).Store(uint64(time.Now().UnixNano()))
	a.rememberBoot()
	a.epochDeaths(w.number()).Store(began.deaths)
	crashpoint.Hit("arena.gate.begun")
	a.u32(a.slot(a.mySlot) + slotAdmission).Store(admissionIn)
	// sync(arena.epoch): release
	if !a.casEpoch(w, w.opened()) {
		return false, a.fail("arena.open", shmsync.ErrCorrupt, "a peer changed the epoch of the arena")
	}
	crashpoint.Hit("arena.gate.opened")
	return true, nil
}

// runHook calls the function Options.OnFirst. During the call, Open of this arena on the same
// goroutine returns an error.
func (a *Arena) runHook(onFirst func(*Arena, Epoch) error, e Epoch) error {
	a.hook.Store(goroutineID())
	defer a.hook.Store(0)
	return onFirst(a, e)
}

// goroutineID returns the number of the calling goroutine. The runtime shows this number only in
// the first line of a stack trace: "goroutine 7 [running]:".
func goroutineID() (n uint64) {
	var b [64]byte
	line := b[:runtime.Stack(b[:], false)]
	fmt.Sscanf(string(line), "goroutine %d ", &n)
	return n
}

// admitUngated makes this process a participant that is in the arena, as the method admit does, if
// byte locks do not work. Without byte locks, a process cannot begin an epoch.
//
// A process that removes the arena claims it without having a slot. Without byte locks,
// admitUngated cannot see whether that process is alive. So it waits for a limited time for the end
// of the claim, and then ends the claim itself. The removing process notices that before it removes
// the file.
func (a *Arena) admitUngated(ctx context.Context, o *Options, named bool) error {
	if o.OnFirst != nil || o.Recreate != 0 || o.Lifetime != LifetimeDurable {
		return a.fail("arena.open", shmsync.ErrNotSupported, "OnFirst, Recreate and Lifetime need byte locks (F_OFD_SETLK), which do not work here")
	}
	mine := a.u32(a.slot(a.mySlot) + slotAdmission)
	removal := shmsync.Monotonic() + int64(gateTimeout)
	for pause := minGatePause; ; pause = min(2*pause, maxGatePause) {
		mine.CompareAndSwap(admissionRefused, admissionPending)
		w := a.epochWord()
		switch {
		case w.phase() == epochRemoved:
			return errMoved
		case w.phase() == epochClaiming:
			a.casEpoch(w, w.end())
		case w.phase() == epochClaimed && w.claimant() == 0:
			if shmsync.Monotonic() > removal {
				a.casEpoch(w, w.end())
			}
		case w.phase() == epochClaimed && a.isCurrent(w.claimant()) && !a.Dead(w.claimant()):
		case mine.CompareAndSwap(admissionPending, admissionIn):
			if a.epochWord().phase() == epochRemoved || named && a.moved() {
				return errMoved
			}
			return nil
		default:
			if err := a.checkAdmission(mine.Load()); err != nil {
				return err
			}
		}
		if err := sleepContext(ctx, pause); err != nil {
			return a.fail("arena.open", err, a.whoClaims())
		}
	}
}

// whoClaims returns a description of the process that a joiner waits for.
func (a *Arena) whoClaims() string {
	w := a.epochWord()
	if w.phase() != epochClaiming && w.phase() != epochClaimed {
		return "another process has the gate of the arena"
	}
	if id := a.Who(w.claimant()); id != nil {
		return fmt.Sprintf("%v begins epoch %d", id, w.number())
	}
	return fmt.Sprintf("a process that is no participant has the gate of the arena, for epoch %d", w.number())
}

// sleepContext sleeps for d, or until ctx ends.
func sleepContext(ctx context.Context, d time.Duration) error {
	if ctx.Done() == nil {
		time.Sleep(d)
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// busy returns the error of an operation that is impossible while another process is in the arena.
// The error says which processes are in it.
func (a *Arena) busy(op string) error {
	who, n := a.insiders()
	if _, dying := a.anyIn(); n == 1 {
		who += " is in"
	} else if n > 1 {
		who += " are in"
	} else if dying {
		who = "the process of a participant that died has not ended"
	} else {
		who = a.whoClaims()
	}
	return a.fail(op, syscall.EBUSY, who)
}
