//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
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
// tries each lock only once.
func (c *recoverCmd) all(s *session, src *source) error {
	a, err := join(c.Arena)
	if err != nil {
		return err
	}
	defer a.Close()
	var done []string
	tried := map[string]bool{}
	for {
		snap, err := src.again()
		if err != nil {
			return err
		}
		before := len(tried)
		for i := range snap.Objects {
			for o := &snap.Objects[i]; isLost(o) && !tried[lockName(o)]; {
				tried[lockName(o)] = true
				text, err := c.one(s, a, snap, o, o.Key)
				if err != nil {
					return errors.Join(s.did("recover", done...), err)
				}
				done = append(done, text)
				if o.Key != nil {
					o.Key = nextKey(a, o)
				}
				if o.Key == nil {
					break
				}
			}
		}
		if len(tried) == before {
			break
		}
	}
	if len(done) == 0 {
		done = []string{"no lock needs it"}
	}
	return s.did("recover", done...)
}

// isLost reports whether a death has left a lock unusable, and shmctl can make it usable.
func isLost(o *object) bool {
	left := o.Error == shmsync.ErrOwnerDead.Error() && o.Policy != "" || o.Error == shmsync.ErrNotRecoverable.Error()
	return left && o.Recoverable()
}

// nextKey returns the next key of a MultiLock that a death has left unusable. It reads the MultiLock alone, because it
// may have very many such keys, and a snapshot of the whole arena takes long.
func nextKey(a *arena.Arena, o *object) *uint64 {
	obj, err := objectOf(a, o)
	if err != nil {
		return nil
	}
	defer (*arenakernel.Arena)(a).CloseObject(obj)
	return (*arenakernel.Arena)(a).Inspect(obj).Key
}

// lockName identifies a lock, or one key of a MultiLock.
func lockName(o *object) string {
	if o.Key != nil {
		return fmt.Sprintf("%x (%d)", o.Offset, *o.Key)
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
