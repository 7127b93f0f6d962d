package prims

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

// Synchronized is a value of type T with its lock. An Update happens wholly or not at all, even if its process is
// killed in the middle of it, or if its function panics or returns an error. So no repair is needed after a death,
// and no call returns an error because of a death.
//
// Load reads the value without the lock. It never waits for an Update, not even if the Update's
// process is stopped or dead, and never sees a part of an Update.
//
// T must have no pointers, and at most SynchronizedMost bytes. An Update copies the value once, and so does a Load.
// Larger or linked data needs a [Mutex], and code that repairs the data after a death.
//
// If a process dies in an Update or a View, other processes get the lock when no system call of the dead
// process can write to the value any more.
//
// In the terminology of the Go memory model, and across processes: an Update or Store synchronizes before the function
// call of each later Update or View, before the return of each later Store, and before the return of a Load that sees
// its value.
//
// The name Synchronized is that of folly and Boost. Load reads as the Linux kernel reads a seqcount latch.
type Synchronized[T any] struct {
	synchronized
	copies [2]*T
}

// synchronized is the part of a Synchronized that does not depend on T.
type synchronized struct {
	lock  *Mutex
	words *synchronizedWords
	// The mark inside is set while a goroutine that got the lock through this handle may be using the two copies of
	// the value. Only the holder of the lock writes the mark. The goroutine that closes this handle reads the mark,
	// and so does a goroutine that closes another handle of the process.
	inside goroutineMark
	// heldSince is a time in ns of CLOCK_MONOTONIC. At that time, Close found for the first time that the owner word
	// names this process while no goroutine of this handle uses the copies; see the method left. 0 means that Close has
	// not found that. Only the goroutine that closes the handle uses heldSince.
	heldSince int64
}

// SynchronizedOptions says how a Synchronized is created. A nil *SynchronizedOptions means
// the zero value.
type SynchronizedOptions struct {
	// Spin bounds how long a waiter for the lock of a new object spins before it sleeps. If
	// it is 0, waiters learn the bound from earlier spins; if it is negative, they never
	// spin.
	Spin time.Duration
}

// SynchronizedMost is the maximum size in bytes of the value of a Synchronized.
const SynchronizedMost = 64 << 10

const (
	// synchronizedTries is how often Load tries to read the value without the lock before it locks. A try fails
	// only if a commit was made meanwhile.
	synchronizedTries = 100
	// synchronizedWait bounds how long Load waits for the lock, in nanoseconds, before it tries to read without the
	// lock again. If the holder of the lock is stopped, that read succeeds, because no commit is made. If the
	// holder is not stopped, Load gets the lock much sooner.
	synchronizedWait = 10e6
	// synchronizedRounds is how often Load alternates between reading and waiting before it waits for the lock
	// without a bound. Load gets that far only if a process overwrites the words.
	synchronizedRounds = 100
)

var synchronizedKind = arenakernel.KindOf("SYNC")

const synchronizedVersion = 1

var (
	_ = crashpoint.Register("synchronized.update.copied")
	_ = crashpoint.Register("synchronized.update.written")
	_ = crashpoint.Register("synchronized.update.committed")
)

// OpenSynchronized finds the Synchronized of that name in the arena or creates it with the
// value initial. An empty name makes a fresh anonymous one.
//
// If an existing object has a value of another layout, the error Is ErrIncompatible. OpenSynchronized panics if
// T has pointers or more than SynchronizedMost bytes.
func OpenSynchronized[T any](a *arena.Arena, name string, initial T, opts *SynchronizedOptions) (*Synchronized[T], error) {
	return openSynchronized((*arenakernel.Arena)(a), name, initial, opts, false)
}

func openSynchronized[T any](a *arenakernel.Arena, name string, initial T, opts *SynchronizedOptions, attach bool) (*Synchronized[T], error) {
	var opt SynchronizedOptions
	if opts != nil {
		opt = *opts
	}
	layout, size := synchronizedLayout[T]()
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: synchronizedKind, Version: synchronizedVersion, Name: name, Size: size, Layout: layout,
		Type: arenakernel.TypeTextOf[T](),
		Init: func(body []byte) { initSynchronized(body, &initial, &opt) },
	}, "synchronized.open", buildSynchronized[T], nil)
}

// SynchronizedAt opens the Synchronized at an offset that another process got from the method
// Offset.
func SynchronizedAt[T any](a *arena.Arena, off arena.Offset) (*Synchronized[T], error) {
	layout, size := synchronizedLayout[T]()
	return handleAt(a, off, "synchronized.open", synchronizedKind, synchronizedVersion, size,
		func(k *arenakernel.Arena, o arenakernel.Object) (*Synchronized[T], error) {
			if what := k.TypeDiffers(o, layout, arenakernel.TypeTextOf[T]()); what != "" {
				return nil, &shmsync.Error{Op: "synchronized.open", Object: objectName(o), Err: shmsync.ErrIncompatible,
					Detail: fmt.Sprintf("opened as a %T: %s", *new(T), what)}
			}
			return buildSynchronized[T](k, o)
		})
}

// synchronizedLayout returns the fingerprint of T and the size of a body with two copies of a T.
func synchronizedLayout[T any]() (layout, size uint64) {
	layout, err := arenakernel.LayoutOf[T]()
	if err != nil {
		panic("shmsync: Synchronized: " + err.Error())
	}
	if n := sizeOf[T](); n > SynchronizedMost {
		panic(fmt.Sprintf("shmsync: Synchronized of %T, which has %d bytes; the most is %d", *new(T), n, SynchronizedMost))
	}
	_, size = synchronizedShape(sizeOf[T]())
	return layout, size
}

func buildSynchronized[T any](a *arenakernel.Arena, o arenakernel.Object) (*Synchronized[T], error) {
	s := &Synchronized[T]{}
	s.words = arenakernel.At[synchronizedWords](a, o.Body)
	copies, _ := synchronizedShape(sizeOf[T]())
	for i, off := range copies {
		s.copies[i] = arenakernel.At[T](a, o.Body+off)
	}
	// The policy of the lock is PolicyRelease, so nobody has to repair the lock after a death. But a peer may have
	// overwritten the policy, and then a death leaves the lock owner-dead. This Repair makes it usable.
	s.lock = buildMutexAt(a, o, o.Body, &MutexOptions{Repair: func() error { return nil }})
	s.lock.counted()
	s.lock.inner = true
	s.lock.opening.inside = markedFunc{&s.inside, "the function of an Update or a View"}
	s.lock.opening.left, s.lock.opening.end, s.lock.opening.owed = s.left, s.lock.end, s.lock.wakeOwed
	return s, nil
}

// Update locks the value and calls f with a copy of it. If f returns nil, the copy becomes the value. If f returns
// an error, Update returns it, and the value is unchanged. The value is also unchanged if f panics or calls
// [runtime.Goexit], or if this process dies before Update has committed. f must not keep v, nor start anything that
// writes to v after f has returned.
//
// If f calls Update, View or Store of s, or Close of s or of the arena, that call panics, because it would wait for
// itself. If Update returns an error that f has not returned, f was not called. The only exception is an error that Is
// ErrCorrupt: a peer has overwritten the lock, f may have been called, and the value is unchanged.
func (s *Synchronized[T]) Update(f func(v *T) error) error {
	return s.UpdateContext(context.Background(), f)
}

// UpdateContext does what Update does, but returns ctx.Err() if ctx ends before UpdateContext has the lock. If the
// lock is free, UpdateContext takes it even though ctx has ended.
func (s *Synchronized[T]) UpdateContext(ctx context.Context, f func(v *T) error) error {
	if err := s.lock.LockContext(ctx); err != nil {
		return s.failed("update", err)
	}
	defer s.leave()
	if err := s.enter("update"); err != nil {
		return err
	}
	c := s.words.current.Load()
	v := s.copies[(c+1)&1]
	*v = *s.copies[c&1]
	crashpoint.Hit("synchronized.update.copied")
	if err := f(v); err != nil {
		return err
	}
	return s.commit("update", c+1)
}

// Store makes v the value, as an Update whose function sets the value to v would.
func (s *Synchronized[T]) Store(v T) {
	if err := s.StoreContext(context.Background(), v); err != nil {
		panic(err)
	}
}

// StoreContext does what Store does, but returns ctx.Err() if ctx ends before StoreContext has the lock. If the
// lock is free, StoreContext takes it even though ctx has ended.
func (s *Synchronized[T]) StoreContext(ctx context.Context, v T) error {
	if err := s.lock.LockContext(ctx); err != nil {
		return s.failed("store", err)
	}
	defer s.leave()
	if err := s.enter("store"); err != nil {
		return err
	}
	c := s.words.current.Load()
	*s.copies[(c+1)&1] = v
	crashpoint.Hit("synchronized.update.copied")
	return s.commit("store", c+1)
}

// View locks the value and calls f with a pointer to the value itself, not to a copy. The value does not change
// during the call. f must not change it, and must not keep v. For calls within f, and for errors, the rules of
// Update apply.
func (s *Synchronized[T]) View(f func(v *T) error) error {
	return s.ViewContext(context.Background(), f)
}

// ViewContext does what View does, but returns ctx.Err() if ctx ends before ViewContext has the lock. If the lock
// is free, ViewContext takes it even though ctx has ended.
func (s *Synchronized[T]) ViewContext(ctx context.Context, f func(v *T) error) error {
	if err := s.lock.LockContext(ctx); err != nil {
		return s.failed("view", err)
	}
	defer s.leave()
	if err := s.enter("view"); err != nil {
		return err
	}
	return f(s.copies[s.words.current.Load()&1])
}

// Load returns a copy of the value. If an Update is under way, Load does not wait, even if the process of the
// Update is stopped or dead. Instead it returns the value from before that Update. Load panics with an *Error that
// Is ErrClosed, or that Is ErrCorrupt if a peer has overwritten the object.
//
// If 100 reads fail because of commits, Load locks the value to read it. In a program built with -race, Load first
// tries to lock, for 10 ms. From the lock, the race detector learns which Updates come before the Load.
func (s *Synchronized[T]) Load() T {
	var v T
	s.LoadInto(&v)
	return v
}

// LoadInto does what Load does, for a value that is too large to be returned: it copies the value to *v. During the
// call *v may have parts of several values. When LoadInto returns, *v is a single value.
func (s *Synchronized[T]) LoadInto(v *T) {
	s.lock.opening.use()
	if !race.Enabled {
		for range synchronizedTries {
			if s.read(v) {
				return
			}
		}
	}
	if err := s.loadSlow(v); err != nil {
		panic(err)
	}
}

// read reads the value without the lock, and reports whether it got a whole value. An Update may write to the same
// copy meanwhile. This is harmless, because read then reports false and its caller does not use *v.
//
//go:norace
func (s *Synchronized[T]) read(v *T) bool {
	// sync(synchronized.commit): acquire
	c := s.words.current.Load()
	*v = *s.copies[c&1]
	asm.LoadFence()
	return s.words.current.Load() == c
}

// loadSlow reads the value with the lock. If the holder of the lock keeps it without committing,
// loadSlow reads without the lock.
func (s *Synchronized[T]) loadSlow(v *T) error {
	for range synchronizedRounds {
		switch err := s.lockFor(synchronizedWait); err {
		case nil:
			return s.loadLocked(v)
		case errTimedOut:
		default:
			return s.failed("load", err)
		}
		for range synchronizedTries {
			if s.read(v) {
				race.Acquire(s.lock.key)
				return nil
			}
		}
	}
	if err := s.lock.lockSlow(nil); err != nil {
		return s.failed("load", err)
	}
	return s.loadLocked(v)
}

// loadLocked reads the value with the lock, and unlocks.
func (s *Synchronized[T]) loadLocked(v *T) error {
	defer s.leave()
	if err := s.enter("load"); err != nil {
		return err
	}
	*v = *s.copies[s.words.current.Load()&1]
	return nil
}

// lockFor locks the value. It returns errTimedOut if that takes longer than timeout nanoseconds.
func (s *synchronized) lockFor(timeout int64) error {
	m := s.lock
	if !m.queue.Enter() {
		return m.closed()
	}
	defer m.queue.Exit()
	w := waiter{m: m, cancel: park.CancelBy(nil), variant: waitVariant{timeout: timeout}}
	err := w.lock()
	w.cancel.Stop()
	if err != nil {
		return err
	}
	race.Acquire(m.key)
	m.counts.holds(w.met)
	return nil
}

// enter begins the use of the copies of the value. The caller holds the lock. enter fails if the handle is being
// closed, because after the close the object may be deleted, and its bytes may belong to another object.
//
//	an Update                      a Close
//	CAS of the owner word          closing = true
//	enter: load of closing         left: load of the owner word
//
// Both sides are sequentially consistent. So enter finds that the handle is being closed, or the method left finds
// that this process has the lock. If the Update loaded the flag closing before its CAS, each method could miss what
// the other call has stored.
func (s *synchronized) enter(verb string) error {
	s.inside.begin()
	if s.lock.opening.closing.Load() {
		return s.failed(verb, s.lock.closed())
	}
	return nil
}

// leave ends the use of the copies and unlocks. If a peer has overwritten the owner word, leave
// does nothing: the next caller that locks gets the error.
func (s *synchronized) leave() {
	s.inside.end()
	m := s.lock
	if !race.Enabled && *m.own == m.biased {
		// Unlock releases a biased hold by the same code. The code is repeated here, because Unlock is not inlined.
		if releaseBiased(m.own, m.wake) {
			m.loseBias()
		}
		return
	}
	if s.holds() {
		m.Unlock()
	}
}

// holds reports whether the owner word says that this process has the lock.
func (s *synchronized) holds() bool {
	o := ownerWord(s.lock.owner.Load())
	return o.held() && o.participant() == s.lock.name
}

// commit makes a copy of the value the valid one. An Update or a Store has written this copy.
func (s *synchronized) commit(verb string, n uint64) error {
	crashpoint.Hit("synchronized.update.written")
	if !s.holds() {
		return s.fail(verb, shmsync.ErrCorrupt, "this process lost the lock: its owner word is "+ownerWord(s.lock.owner.Load()).String())
	}
	// sync(synchronized.commit): release
	// lin: Update takes effect here
	commitStore(&s.words.current, n)
	crashpoint.Hit("synchronized.update.committed")
	return nil
}

// failed returns the error of a call whose lock returned err. The lock repairs itself after a death. So if err says
// that the lock is owner-dead or not recoverable, a peer has overwritten its words, and failed returns an error
// that Is ErrCorrupt.
func (s *synchronized) failed(verb string, err error) error {
	var e *shmsync.Error
	if !errors.As(err, &e) {
		return err
	}
	is := *e
	is.Op = "synchronized." + verb
	if errors.Is(err, shmsync.ErrNotRecoverable) || errors.Is(err, shmsync.ErrOwnerDead) {
		is.Err, is.Detail = shmsync.ErrCorrupt, "its lock says: "+e.Err.Error()
	}
	return &is
}

func (s *synchronized) fail(verb string, err error, detail string) error {
	return failed(s.lock.a, s.lock.object, "synchronized."+verb, err, nil, detail)
}

// Offset returns the place of the Synchronized in its arena, for SynchronizedAt in another process.
func (s *Synchronized[T]) Offset() arena.Offset { return s.lock.object.Offset }

// Close closes this handle on the Synchronized, and no other. It waits for Updates and Views of this handle
// that have the lock. Calls that wait for the lock end with an error that Is ErrClosed. All Loads must have
// returned before the call of Close. A second Close is an error that Is ErrClosed.
func (s *Synchronized[T]) Close() error { return s.lock.opening.close("synchronized.close") }

// SynchronizedState is the result of State.
type SynchronizedState struct {
	Commits uint64            // how often an Update or a Store has changed the value
	Held    bool              // a process has the lock, or died with the lock and has not ended yet
	Owner   *shmsync.Identity // the process that has the lock; nil if it is free or the process is not known
	Waiting bool              // waiters for the lock may be asleep
	Err     error             // ErrCorrupt if a peer has overwritten the lock, otherwise nil
}

// State reads the words of s without locking it. The result may be out of date when State returns, and its parts
// may be from different moments.
func (s *Synchronized[T]) State() SynchronizedState { return s.state() }

func (s *synchronized) state() SynchronizedState {
	m := s.lock.State()
	st := SynchronizedState{Commits: s.words.current.Load(), Held: m.Held, Owner: m.Owner, Waiting: m.Waiting}
	if errors.Is(m.Err, shmsync.ErrCorrupt) || errors.Is(m.Err, shmsync.ErrNotRecoverable) {
		st.Err = shmsync.ErrCorrupt
	}
	return st
}

// String renders the state on one line.
func (s *Synchronized[T]) String() string {
	return fmt.Sprintf("synchronized %s: %d commits, %s", objectName(s.lock.object), s.state().Commits, s.lock.State().Word)
}
