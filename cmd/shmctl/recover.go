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
	Wait  time.Duration `default:"5s" help:"How long to wait for a lock."`
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
	a, err := join(c.Arena)
	if err != nil {
		return err
	}
	defer a.Close()
	done, err := c.one(s, a, snap, o, c.Key)
	if err != nil {
		return err
	}
	return s.did("recover", done)
}

// all recovers locks until none needs it. Another holder may die meanwhile, so it looks again after each round, but it
// tries each lock only once. A lock that fails does not keep it from the others.
func (c *recoverCmd) all(s *session, src *source) error {
	a, err := join(c.Arena)
	if err != nil {
		return err
	}
	defer a.Close()
	var done, failed []string
	tried := map[string]bool{}
	for again := true; again; {
		again = false
		snap, err := src.again()
		if err != nil {
			return errors.Join(s.tried(done, failed), err)
		}
		for i := range snap.Objects {
			o := &snap.Objects[i]
			if !isLost(o) {
				continue
			}
			for _, key := range lostKeys(a, o) {
				name := lockName(o, key)
				if tried[name] {
					continue
				}
				tried[name], again = true, true
				text, err := c.one(s, a, snap, o, key)
				switch {
				case err == nil:
					done = append(done, text)
				case errors.As(err, new(missing)): // it needs no recovery any more
					done = append(done, err.Error())
				default:
					failed = append(failed, diagnose.ErrorText(err))
				}
				if s.ctx.Err() != nil {
					return errors.Join(s.tried(done, failed), errors.New("interrupted"))
				}
			}
		}
	}
	if len(done)+len(failed) == 0 {
		done = []string{"no lock needs it"}
	}
	return s.tried(done, failed)
}

// tried reports what recover --all has done. If it could not recover every lock, the error says for each of the others
// why, and for JSON the document does.
func (s *session) tried(done, failed []string) error {
	d := s.begin("recover")
	d.Done, d.Failed = done, failed
	if err := s.write(d); err != nil || len(failed) == 0 {
		return err
	}
	return refused{strings.Join(failed, "\n") + fmt.Sprintf("\nnot recovered: %d of %d", len(failed), len(failed)+len(done))}
}

// isLost reports whether a death has left a lock unusable, and shmctl can make it usable.
func isLost(o *object) bool {
	left := o.Error == shmsync.ErrOwnerDead.Error() && o.Policy != "" || o.Error == shmsync.ErrNotRecoverable.Error()
	return left && o.Recoverable()
}

// lostKeys returns the keys of a MultiLock that a death has left unusable, and nil as the only key of another lock. It
// reads the MultiLock anew, because the snapshot has only the first of its keys.
func lostKeys(a *arena.Arena, o *object) (keys []*uint64) {
	if o.Key == nil {
		return []*uint64{nil}
	}
	obj, err := objectOf(a, o)
	if err != nil {
		return []*uint64{o.Key} // to recover it will fail, too, and say why
	}
	defer (*arenakernel.Arena)(a).CloseObject(obj)
	for _, key := range (*arenakernel.Arena)(a).Inspect(obj).Keys {
		keys = append(keys, &key)
	}
	return keys
}

// lockName identifies a lock, or one key of a MultiLock.
func lockName(o *object, key *uint64) string {
	if key != nil {
		return fmt.Sprintf("%x (%d)", o.Offset, *key)
	}
	return fmt.Sprintf("%x", o.Offset)
}

// one recovers a single lock, or a single key of a MultiLock. It returns a text that says what it did.
func (c *recoverCmd) one(s *session, a *arena.Arena, snap *snapshot, o *object, key *uint64) (done string, err error) {
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
	err = prims.RecoverAtContext(ctx, a, arena.Object(obj), k, func() error { ran = true; return nil })
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
