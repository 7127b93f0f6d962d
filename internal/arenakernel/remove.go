package arenakernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/shm"
)

var (
	_ = crashpoint.Register("arena.remove.unlinked")
	_ = crashpoint.Register("arena.remove.marked")
)

// errOtherArena is in the chain of an error about an arena that is intact, but differs from the arena
// that was asked for.
var errOtherArena = errors.New("another arena")

type otherArenaError struct{ error }

func (e otherArenaError) Unwrap() []error { return []error{e.error, errOtherArena} }

func otherArena(err error) error { return otherArenaError{err} }

// Remove removes the file of the arena of that name under /dev/shm, or at a path if name has a slash.
// While participants are in the arena, the file stays, and the error Is [syscall.EBUSY] and names the
// participants. If there is no file, the error Is [fs.ErrNotExist]. If the file is no arena, the error
// Is [shmsync.ErrIncompatible]; [shm.Remove] removes any file.
//
// If byte locks do not work on the file, the error Is [shmsync.ErrNotSupported].
func Remove(name string) error {
	if err := checkPlatform("arena.remove", name); err != nil {
		return err
	}
	return removeUnused(name, nil, nil)
}

// gateTimeout is how long a removal waits for the gate, a file lock that a process takes before it
// begins an epoch or removes the arena. If such a process then finds a participant in the arena, it
// releases the gate after a moment.
const gateTimeout = time.Second

// removeUnused removes the file of an arena if there is no participant in the arena. If the parameter judged is not
// nil, removeUnused removes no other file than the one that judged describes. The parameter mapped is the segment of
// the file, or nil if this process has not mapped the file. If the path leads to another file again and again,
// removeUnused gives up after maxMoves attempts.
func removeUnused(name string, judged os.FileInfo, mapped *shm.Segment) error {
	end, moves := time.Now().Add(gateTimeout), 0
	for pause := minGatePause; ; pause = min(2*pause, maxGatePause) {
		again, err := tryRemove(name, judged, mapped)
		if !again || err != nil && time.Now().After(end) {
			return err
		}
		if err == nil { // the path leads to another file now
			if moves++; moves == maxMoves {
				return &shmsync.Error{Op: "arena.remove", Object: name, Err: errBusy, Detail: "the path leads to another file each time"}
			}
		}
		pauseRemoval(pause)
	}
}

// pauseRemoval waits between two attempts to remove a file. It is a variable so that tests can see
// that a removal makes a further attempt.
var pauseRemoval = time.Sleep

// tryRemove makes one attempt to remove the file of an arena. The first result is true if a further attempt may
// have another result.
func tryRemove(name string, judged os.FileInfo, mapped *shm.Segment) (again bool, err error) {
	path := name
	if !isPath(name) {
		if err := shm.ValidName(name); err != nil {
			return false, err
		}
		path = shm.Dir + "/" + name
	}
	fail := func(err error, detail string) error {
		return &shmsync.Error{Op: "arena.remove", Object: path, Err: err, Detail: detail}
	}
	f, err := os.OpenFile(path, os.O_RDWR|openFlags, 0)
	if err != nil {
		if judged != nil && !leadsTo(path, judged) {
			return false, nil // another program has put something else at the path, such as a directory
		}
		return false, fail(err, "")
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return false, fail(err, "")
	}
	if judged != nil && !os.SameFile(st, judged) {
		return false, nil // another process has replaced the file
	}
	header := make([]byte, headerSize)
	n, err := f.ReadAt(header, 0)
	if err != nil && err != io.EOF {
		return false, fail(err, "")
	}
	if n < len(magic) || string(header[:len(magic)]) != magic {
		return false, fail(shmsync.ErrIncompatible, "not an arena")
	}
	locked, err := shmsync.LockByte(f, gateByte)
	if err != nil {
		return false, fail(err, "")
	}
	if locked { // f.Close is not enough, because a forked child may keep the open file description, and the lock with it
		defer shmsync.UnlockByte(f, gateByte)
	}
	if st, err = f.Stat(); err != nil {
		return false, fail(err, "")
	}
	geo, err := validate(header[:n], uint64(st.Size()), path)
	if err != nil {
		// The gate and the byte locks have the same meaning in every layout.
		in, err := anyByteLocked(f, 0, gateByte)
		switch {
		case !locked:
			return true, fail(errBusy, "another process has the gate of the arena")
		case err != nil:
			return false, fail(err, "")
		case in:
			return false, fail(errBusy, "a process has it open")
		case stateOfPath(f, path) != PathThere:
			return true, nil
		}
		return removeIt(f, path)
	}
	seg, full := mapped, false
	if seg == nil || uint64(seg.Size()) != uint64(st.Size()) { // a peer may have changed the size of the file since the join
		if seg, err = shm.FromFile(f, &shm.Options{TrustUIDs: anyOwner(st)}); err != nil {
			return false, err
		}
		defer seg.Close()
		// A copy of a file may have holes. If the file system is full, an access to a hole through the mapping
		// ends the process. So first allocate memory for the slots. The header is never a hole.
		full = isNoSpace(seg.Reserve(0, int64(geo.dirOff)))
	}
	dev, ino := seg.ID()
	a := &Arena{membership: &membership{seg: seg, id: segmentID{dev, ino}, lock: f}}
	a.memory, a.geo, a.label = newMemory(seg.Bytes()), geo, path
	a.current = a.isCurrent
	switch {
	case !locked && full:
		return true, fail(errBusy, "another process has the gate of the arena")
	case !locked:
		return !a.occupied(), a.busy("arena.remove")
	case stateOfPath(f, path) != PathThere:
		return true, nil
	}
	if a.epochWord().phase() == epochRemoved {
		return removeIt(f, path) // the arena was removed by another path; this path is a further name of its file
	}
	if full {
		return a.removeSparse()
	}
	if in, _ := a.anyIn(); in != 0 {
		return false, a.busy("arena.remove")
	}
	w, in, _ := a.claimEpoch(nil)
	switch {
	case in != 0:
		return false, a.busy("arena.remove")
	case w == 0:
		return true, a.busy("arena.remove")
	}
	return a.unlinkClaimed(w)
}

// removeSparse removes the file of an arena as tryRemove does. It is for a full file system in which slots may be
// holes: it reads the slots from the file, and not through the mapping. The caller has the gate.
//
// removeSparse calls seemsUnused before and after it stores its claim in the epoch word. If either call finds that
// the arena may be in use, the file stays. Unlike claimEpoch, removeSparse need not refuse pending joiners: a joiner
// that takes its byte lock after the second call reads the epoch word later, and finds the claim.
func (a *Arena) removeSparse() (again bool, err error) {
	if err := a.seemsUnused(); err != nil {
		return errors.Is(err, errBusy), err
	}
	old := a.epochWord()
	w := old.claim(0)
	if !a.casEpoch(old, w) {
		return true, a.fail("arena.remove", errBusy, "another process has changed the epoch")
	}
	crashpoint.Hit("arena.gate.claiming")
	if err := a.seemsUnused(); err != nil {
		if old.phase() == epochClaimed {
			a.casEpoch(w, old) // as in claimEpoch
		} else {
			a.casEpoch(w, w.end())
		}
		return true, err
	}
	claimed := w.with(epochClaimed)
	if !a.casEpoch(w, claimed) {
		return true, a.fail("arena.remove", errBusy, "a process has joined it")
	}
	return a.unlinkClaimed(claimed)
}

// seemsUnused returns an error if a process has a byte lock of a slot. It also returns an error if a slot in the file
// is live or leaving and its participant uses no byte lock.
func (a *Arena) seemsUnused() error {
	fail := func(err error, detail string) error { return a.fail("arena.remove", err, detail) }
	switch in, err := anyByteLocked(a.lock, 0, gateByte); {
	case err != nil:
		return fail(err, "")
	case in:
		return fail(errBusy, "a process has it open")
	}
	slots := make([]byte, a.geo.slots*slotStride)
	if _, err := a.lock.ReadAt(slots, int64(a.geo.slotsOff)); err != nil {
		return fail(err, "")
	}
	for ; len(slots) > 0; slots = slots[slotStride:] {
		w := slotWord(binary.LittleEndian.Uint32(slots[slotState:]))
		if p := w.phase(); !w.hasByte() && (p == phaseLive || p == phaseLeaving) {
			return fail(errBusy, "a participant without a byte lock may be in")
		}
	}
	return nil
}

// unlinkClaimed removes the file of an arena that this process has claimed. No other process is in a claimed
// arena. The first result is true if the file was not removed, because the path leads to another file now, or
// because another process has ended the claim.
func (a *Arena) unlinkClaimed(w epochWord) (moved bool, err error) {
	if a.epochWord() != w {
		return true, nil // a joiner without byte locks has ended the claim
	}
	f := a.seg.File()
	if a.lock != nil {
		f = a.lock // the segment may have lost its descriptor
	}
	if moved, err = removeIt(f, a.currentPath()); err != nil {
		return false, err
	}
	crashpoint.Hit("arena.remove.unlinked")
	// A joiner that has the file open sees the phase epochRemoved and starts over. The phase must change even
	// if the file was not removed because it has another path now: the joiners do not know the new path.
	a.casEpoch(w, w.with(epochRemoved))
	crashpoint.Hit("arena.remove.marked")
	return moved, nil
}

// dropFurtherName is for a joiner that finds the phase epochRemoved in the epoch word. The remover has removed
// the name that it knew, but the file may have a further name: a hard link, or a new path after a rename. No
// process can join the arena any more. So if the joiner has found the file by a further name, dropFurtherName
// removes that name. The result Is errMoved if the joiner can start over at the name.
//
// A correct remover claims the arena first, so no participant is in. If a participant is in, a peer has changed the epoch
// word, and the name stays.
func (a *Arena) dropFurtherName(named bool) error {
	if !named || a.lock == nil || a.pathState() != PathThere {
		return errMoved
	}
	// While this process has the gate, no other remover uses the private name of the file. The method leave
	// releases the gate together with the byte lock.
	locked, err := a.lockGate()
	if err != nil {
		return err
	}
	if !locked {
		time.Sleep(time.Millisecond) // another process is removing the name, or is stopped meanwhile
		return errMoved
	}
	if in, _ := a.anyIn(); in != 0 {
		return errMoved
	}
	if _, err := removeFile(a.lock, a.currentPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return a.fail("arena.open", err, "the arena was removed by another name of its file, and this name could not be removed")
	}
	return errMoved
}

// removeIt calls removeFile, and adds the operation and the path to its error.
func removeIt(f *os.File, path string) (moved bool, err error) {
	if moved, err = removeFile(f, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, &shmsync.Error{Op: "arena.remove", Object: path, Err: err, Detail: whyNotRemovable(f, path, err)}
	}
	return moved, nil
}

// whyNotRemovable says in words why the file f could not be removed from path, if the error alone does not say it.
func whyNotRemovable(f *os.File, path string, err error) string {
	if errors.Is(err, errBusy) {
		return "the file is a mount point"
	}
	if !errors.Is(err, fs.ErrPermission) {
		return ""
	}
	own, ferr := f.Stat()
	dir, derr := os.Stat(directoryOf(path) + ".")
	if ferr != nil || derr != nil {
		return ""
	}
	if owner := anyOwner(own); dir.Mode()&fs.ModeSticky != 0 && len(owner) == 1 {
		return fmt.Sprintf("the directory has the sticky bit, and the file belongs to uid %d: only that user may remove it", owner[0])
	}
	return "the removal needs write permission for the directory"
}

// removeLast removes the file of an arena with LifetimeEphemeral that this process has left, if no
// other participant is in the arena. If this process dies first, the first participant of the next
// epoch replaces the arena.
//
// Several participants may leave at the same time. Suppose that A has the gate, and does not remove
// the file because B is still in the arena. Then B leaves while A still has the gate. If B gave up
// because A has the gate, no process would remove the file. So removeLast waits for the gate. It
// does not wait while a participant is in the arena, because that participant removes the file. If
// a process is stopped while it has the gate, removeLast gives up after gateTimeout.
//
// The result is nil if another participant removes the file. It is also nil if this process has no permission to remove
// the file: then the next epoch replaces the arena. Any other failure is an error.
func (a *Arena) removeLast() error {
	if a.seg.Path() == "" || a.pathState() != PathThere {
		return nil
	}
	own, err := a.ownFile()
	if err != nil {
		return err
	}
	// removeUnused maps nothing and opens one file. It does not fail if this process has run out of descriptors,
	// because the process has just closed the file of its byte lock.
	err = removeUnused(a.currentPath(), own, a.seg)
	if errors.Is(err, errBusy) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// watchName calls f when the name of the arena leads to another file, or to none. It calls f once at most. The
// watch ends when this opening is closed.
func (a *Arena) watchName(f func()) {
	stop := make(chan struct{})
	a.OnEnd(stop, sync.OnceFunc(func() { close(stop) }))
	go func() {
		tick := time.NewTicker(watchNameEvery)
		defer tick.Stop()
		a.checkName(stop, tick.C, f)
	}()
}

// checkName checks the name of the arena at each tick until stop is closed. It calls f and returns when the name leads
// to another file, or to none.
func (a *Arena) checkName(stop <-chan struct{}, tick <-chan time.Time, f func()) {
	for {
		select {
		case <-stop:
			return
		case <-tick:
		}
		if !a.moved() {
			continue
		}
		// Close closes the channel stop before it removes the file of an ephemeral arena. So if the channel is still
		// open, the file was not removed by the Close of this opening.
		select {
		case <-stop:
		default:
			f()
		}
		return
	}
}

// watchNameEvery is how often the path of an arena is checked for OnDetached.
const watchNameEvery = time.Second
