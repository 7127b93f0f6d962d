//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/prims"
)

type recoverCmd struct {
	Arena string        `arg:"" help:"Name or path."`
	Name  string        `arg:"" optional:"" help:"Name or offset of a lock, WaitGroup, Latch, Barrier or Future."`
	Key   *uint64       `help:"The key of a MultiLock."`
	All   bool          `help:"All locks of the arena that a death has left, and all their keys."`
	Wait  time.Duration `default:"5s" help:"How long to wait for a lock, and for a process that begins an epoch."`
}

// Run makes one lock usable again after a death, or all such locks.
func (c *recoverCmd) Run(s *session) error {
	if (c.Name == "") != c.All || c.All && c.Key != nil {
		return errors.New("recover: give either the name of a lock or --all")
	}
	src, err := open(c.Arena)
	if err != nil {
		return err
	}
	defer src.Close()
	if src.isDump() {
		return refused{c.Arena + " is a dump"}
	}
	if c.All {
		return c.all(s, src)
	}
	snap := src.look()
	o, err := find(snap, c.Name)
	switch {
	case err != nil:
		return err
	case o.Error == shmsync.ErrCorrupt.Error():
		return refused{fmt.Sprintf("%s has impossible bytes: %s", c.Name, o.State)}
	case !o.Recoverable():
		return refused{fmt.Sprintf("%s is a %s: recover is for locks, WaitGroup, Latch, Barrier and Future", c.Name, o.Type)}
	case o.Kind == "MULT" && c.Key == nil && o.Key != nil:
		return refused{fmt.Sprintf("%s is a MultiLock: say which key, as --key=%d, which a death has left", c.Name, *o.Key)}
	case o.Kind == "MULT" && c.Key == nil:
		return refused{c.Name + " is a MultiLock: say which key, as --key=4711"}
	}
	var done string
	err = s.inArena(c.Arena, snap, c.Wait, func(a *arena.Arena) (err error) {
		done, err = c.one(s, a, snap, o, c.Key, nil)
		return err
	})
	if err != nil {
		return err
	}
	return s.did("recover", done)
}

// all recovers locks until no lock needs a recovery. It takes a new snapshot after each round, because a holder may die
// during a round. It tries each lock only once, and goes on after a failure.
func (c *recoverCmd) all(s *session, src *source) error {
	return s.inArena(c.Arena, src.look(), c.Wait, func(a *arena.Arena) error { return c.allIn(s, a, src) })
}

// allIn does what the method all does, in an arena that this process has joined.
func (c *recoverCmd) allIn(s *session, a *arena.Arena, src *source) error {
	var t tries
	for again := true; again && s.ctx.Err() == nil; {
		before := len(t.seen)
		snap, err := src.again()
		if err != nil {
			return errors.Join(t.report(s), err)
		}
		for i := range snap.Objects {
			if o := &snap.Objects[i]; isLost(o) {
				c.lock(s, a, snap, o, &t)
			}
		}
		again = len(t.seen) > before
	}
	err := t.report(s)
	if s.ctx.Err() != nil {
		err = errors.Join(err, errors.New("interrupted"))
	}
	return err
}

// tries has the locks that recover --all has tried, and the results.
type tries struct {
	seen         map[string]bool // by lockName
	done, failed []string
}

// lock recovers a lock, or each key of a MultiLock that a death has left unusable.
func (c *recoverCmd) lock(s *session, a *arena.Arena, snap *snapshot, o *object, t *tries) {
	keys, m := lostKeys(a, o)
	if m != nil {
		defer m.Close()
	}
	for _, key := range keys {
		name := lockName(o, key)
		if t.seen[name] || s.ctx.Err() != nil {
			continue
		}
		if t.seen == nil {
			t.seen = map[string]bool{}
		}
		t.seen[name] = true
		text, err := c.one(s, a, snap, o, key, m)
		switch {
		case err == nil:
			t.done = append(t.done, text)
		case errors.As(err, new(missing)): // the lock was deleted meanwhile
			t.done = append(t.done, err.Error())
		default:
			t.failed = append(t.failed, diagnose.ErrorText(err))
		}
	}
}

// report writes what recover --all has done. If the recovery of a lock failed, report returns an error with the
// reasons. A JSON document contains the reasons, too.
func (t *tries) report(s *session) error {
	d := s.begin("recover")
	d.Done, d.Failed = t.done, t.failed
	if len(t.seen) == 0 {
		d.Done = []string{"no lock needs it"}
	}
	if err := s.write(d); err != nil || len(t.failed) == 0 {
		return err
	}
	return refused{strings.Join(t.failed, "\n") + fmt.Sprintf("\nnot recovered: %d of %d", len(t.failed), len(t.failed)+len(t.done))}
}

// isLost reports whether a death has left a lock unusable, and shmctl can make it usable.
func isLost(o *object) bool {
	left := o.Error == shmsync.ErrOwnerDead.Error() && o.Policy != "" || o.Error == shmsync.ErrNotRecoverable.Error()
	return left && o.Recoverable()
}

// lostKeys returns the keys of a MultiLock that a death has left unusable. For another kind of lock, it returns the
// single key nil. It reads the MultiLock anew, because the snapshot has only the first of the keys. The result m is a
// handle of the MultiLock, or nil. Recoveries of many keys share the handle, because a new handle has to find all
// buckets.
func lostKeys(a *arena.Arena, o *object) (keys []*uint64, m *prims.MultiLock) {
	if o.Key == nil {
		return []*uint64{nil}, nil
	}
	obj, err := objectOf(a, o)
	if err != nil {
		return []*uint64{o.Key}, nil // the recovery of this key will report the error
	}
	defer (*arenakernel.Arena)(a).CloseObject(obj)
	for _, key := range (*arenakernel.Arena)(a).Inspect(obj).Keys {
		keys = append(keys, &key)
	}
	m, _ = prims.MultiLockAt(a, obj.Offset)
	return keys, m
}

// lockName identifies a lock, or one key of a MultiLock.
func lockName(o *object, key *uint64) string {
	if key != nil {
		return fmt.Sprintf("%x (%d)", o.Offset, *key)
	}
	return fmt.Sprintf("%x", o.Offset)
}

// one recovers a single lock, or a single key of a MultiLock. If m is not nil, it is a handle of the MultiLock. The
// result done says what has happened.
func (c *recoverCmd) one(s *session, a *arena.Arena, snap *snapshot, o *object, key *uint64, m *prims.MultiLock) (done string, err error) {
	obj, err := objectOf(a, o)
	if err != nil {
		return "", err
	}
	defer (*arenakernel.Arena)(a).CloseObject(obj)
	ctx, stop := context.WithTimeout(s.ctx, c.Wait)
	defer stop()
	name, k := o.Name, uint64(0)
	if key != nil {
		k = *key
		name = fmt.Sprintf("%s (%d)", o.Name, k)
	}
	ran := false
	repair := func() error { ran = true; return nil }
	if m != nil {
		err = m.RecoverContext(ctx, k, repair)
	} else {
		err = prims.RecoverAtContext(ctx, a, arena.Object(obj), k, repair)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "", refused{fmt.Sprintf("a process has %s: see %s", name, snap.Command("show", o))}
	case err != nil:
		return "", err
	case !ran:
		return name + " was healthy", nil
	}
	if o.Policy == "" {
		return name + " was reset", nil
	}
	return name + " can be locked again", nil
}
