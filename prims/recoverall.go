package prims

import (
	"context"
	"errors"
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Lost is an object, or one key of a [MultiLock], that the death of a process has made unusable.
type Lost struct {
	Object arena.Object
	Key    *uint64           // the key, if the object is a MultiLock, and nil otherwise
	Err    error             // the error that calls on the object get: ErrOwnerDead or ErrNotRecoverable
	Who    *shmsync.Identity // the process that died; nil if it is not known
}

// String says which object was lost, and which process caused that by its death.
func (l Lost) String() string {
	s := fmt.Sprintf("%s %s", kindNames[l.Object.Kind], objectName(arenakernel.Object(l.Object)))
	if l.Key != nil {
		s = fmt.Sprintf("key %d of %s", *l.Key, s)
	}
	s += ": " + l.Err.Error()
	if l.Who != nil {
		s += ": " + l.Who.String()
	}
	return s
}

// RecoverAll recovers the objects of the arena that deaths have made unusable, and returns the objects that are usable
// again. Call it in OnFirst of [arena.Options]. At that time no other process has joined the arena, and the library has
// already cleaned up after every dead participant.
//
// For each such object, and for each such key of a [MultiLock], RecoverAll calls repair, which repairs the data that
// the object guards.
//
//	kind                                what RecoverAll does
//	the locks, a key of a MultiLock     it calls Recover of the lock, which runs repair while the lock is held
//	WaitGroup, Latch, Barrier, Future   it calls repair, and then Reset if the object is still unusable
//	Waitable                            it calls repair, which opens the Waitable and calls its Recover
//
// The function repair must not be nil. If repair returns an error, that object stays unusable, and RecoverAll
// continues with the next object. RecoverAll returns the errors of all such objects, joined into one error.
//
// An object that a peer has overwritten cannot be recovered. The joined error then also has an error for this object
// that Is ErrCorrupt. If the header of the object is impossible, that error names the object by its offset. Delete
// removes the object.
func RecoverAll(a *arena.Arena, repair func(Lost) error) ([]Lost, error) {
	return RecoverAllContext(context.Background(), a, repair)
}

// RecoverAllContext is like RecoverAll, but returns ctx.Err() if ctx ends before it has recovered all objects.
func RecoverAllContext(ctx context.Context, a *arena.Arena, repair func(Lost) error) (recovered []Lost, err error) {
	mustHaveRepair(repair != nil, "all objects")
	ctx = orEndless(ctx)
	var objects []arena.Object // all objects, listed before any repair, because a repair may delete some
	var failed []error
	for o, err := range (*arenakernel.Arena)(a).ObjectsAndErrors() {
		if err != nil {
			failed = append(failed, err)
			continue
		}
		objects = append(objects, arena.Object(o))
	}
	for _, o := range objects {
		lost, err := lostOf(a, o)
		if err != nil {
			failed = append(failed, err)
		}
		did, errs, ended := recoverEach(ctx, a, lost, repair)
		recovered, failed = append(recovered, did...), append(failed, errs...)
		if ended != nil {
			return recovered, errors.Join(append(failed, ended)...)
		}
	}
	return recovered, errors.Join(failed...)
}

// recoverEach recovers a lost object, or the lost keys of a MultiLock. It returns what it has recovered, the errors, and
// ctx.Err() if ctx ended before it had tried all of them.
func recoverEach(ctx context.Context, a *arena.Arena, lost []Lost, repair func(Lost) error) (did []Lost, errs []error, ended error) {
	var keys *MultiLock
	if len(lost) > 1 { // one handle for all keys, because each handle looks for all buckets of the MultiLock
		if x, err := MultiLockAt(a, lost[0].Object.Offset); err == nil {
			defer x.Close()
			keys = x
		}
	}
	for _, l := range lost {
		if err := ctx.Err(); err != nil {
			return did, errs, err
		}
		switch is, err := l.recover(ctx, a, keys, repair); {
		case err != nil:
			errs = append(errs, err)
		case is:
			did = append(did, l)
		}
	}
	return did, errs, nil
}

// lostOf returns the object o if it is lost, or the lost keys of o if o is a MultiLock. If o was deleted, lostOf
// returns nothing. If o cannot be opened for any other reason, lostOf returns an error.
func lostOf(a *arena.Arena, o arena.Object) (lost []Lost, err error) {
	k := (*arenakernel.Arena)(a)
	if err := k.BeginCall("prims.recover_all"); err != nil {
		return nil, err
	}
	defer k.EndCall()
	k = k.Within()
	is, err := k.ObjectAt(o.Offset)
	switch {
	case errors.Is(err, shmsync.ErrIncompatible):
		return nil, nil
	case err != nil:
		return nil, err
	case is != arenakernel.Object(o):
		k.CloseObject(is)
		return nil, nil
	}
	defer k.CloseObject(is)
	i := k.Inspect(is)
	switch {
	case i.Err == nil, o.Kind == synchronizedKind && !errors.Is(i.Err, shmsync.ErrCorrupt):
		return nil, nil
	case o.Kind != multiLockKind || i.Key == nil:
		return []Lost{{Object: o, Err: i.Err, Who: k.Who(i.Died)}}, nil
	}
	x, err := buildMultiLock(k, is, true)
	if err != nil {
		return nil, err
	}
	x.eachLost(func(key uint64, s keyState) {
		lost = append(lost, Lost{Object: o, Key: &key, Err: s.err(), Who: k.Who(s.participant())})
	})
	return lost, nil
}

// recover makes l usable again, and reports in did whether it did so. If l is a lock that was usable already, recover
// does not call repair, and returns false and nil. If l is a key of a MultiLock, the parameter keys is a handle on this
// MultiLock, or nil.
func (l Lost) recover(ctx context.Context, a *arena.Arena, keys *MultiLock, repair func(Lost) error) (did bool, err error) {
	if errors.Is(l.Err, shmsync.ErrCorrupt) {
		return false, l.fail(l.Err, "a peer has overwritten it; Delete removes it")
	}
	var x interface {
		handle
		Reset() bool
		Close() error
	}
	switch l.Object.Kind {
	case waitGroupKind:
		x, err = WaitGroupAt(a, l.Object.Offset)
	case latchKind:
		x, err = LatchAt(a, l.Object.Offset)
	case barrierKind:
		x, err = BarrierAt(a, l.Object.Offset)
	case futureKind:
		var f *Future
		f, err = FutureAt(a, l.Object.Offset)
		x = abandonedFuture{f}
	case waitableKind:
		k := (*arenakernel.Arena)(a)
		if err := k.BeginCall("prims.recover_all"); err != nil { // Close of the arena waits for repair
			return false, err
		}
		defer k.EndCall()
		k.BeforeClose(func() { mustNotCloseArenaInside(k) })
		if err := l.run(k, repair); err != nil {
			return false, l.fail(shmsync.ErrNotRecoverable, "the repair failed: "+err.Error())
		}
		still, err := lostOf(a, l.Object)
		if len(still) > 0 {
			err = l.fail(shmsync.ErrNotRecoverable, "the repair did not call its Recover")
		}
		return err == nil, err
	default:
		var key uint64
		if l.Key != nil {
			key = *l.Key
		}
		run := func() error {
			did = true
			return repair(l)
		}
		if keys != nil {
			err = keys.RecoverContext(ctx, key, run)
		} else {
			err = RecoverAtContext(ctx, a, l.Object, key, run)
		}
		return did && err == nil, err
	}
	if err != nil {
		return false, err
	}
	defer x.Close()
	if !x.opened().stayToRun() { // Close of the arena waits for repair, and for the Reset after it
		return false, x.opened().refused("prims.recover_all")
	}
	defer x.opened().leave() // runs before the deferred Close
	if err := l.run(x.opened().a, repair); err != nil {
		return false, l.fail(l.Err, "the repair failed: "+err.Error())
	}
	still, err := lostOf(a, l.Object)
	if len(still) > 0 { // otherwise repair has made it usable, and a Reset would erase what repair has set
		x.Reset()
		still, err = lostOf(a, l.Object)
	}
	if len(still) > 0 {
		err = l.fail(still[0].Err, "it is lost again")
	}
	return err == nil, err
}

// run calls repair. It records that repair is running, so that a Close of the arena inside repair panics. Otherwise
// that Close would wait for ever, because Close of the arena waits for the caller of run.
func (l Lost) run(a *arenakernel.Arena, repair func(Lost) error) error {
	running := &runningFunc{what: "the function of RecoverAll", a: a}
	running.begin()
	defer running.end()
	return repair(l)
}

// abandonedFuture is a Future whose Reset does something only if its producer died.
type abandonedFuture struct{ *Future }

func (f abandonedFuture) Reset() bool { return f.reset(true) }

func (l Lost) fail(err error, detail string) error {
	return &shmsync.Error{Op: "prims.recover_all", Object: objectName(arenakernel.Object(l.Object)), Err: err, Who: l.Who, Detail: detail}
}
