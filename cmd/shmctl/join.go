//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/shm"
)

// errLeftToApplication is the error that the OnFirst of shmctl returns. So the epoch does not begin.
var errLeftToApplication = errors.New("shmctl leaves the epoch to the application")

// inArena joins an arena, calls work, and leaves the arena. It waits at most for the given time until it can join. It
// refuses an arena if, in a snapshot of the arena, a living participant has no byte lock on this file: shmctl would take
// the participant for dead, and reap it.
//
// An epoch belongs to the application: its first participant learns from OnFirst which participants have died. So shmctl
// begins no epoch. If no process is in the arena, work runs as an OnFirst that fails. No process can join meanwhile. The
// next process that joins claims the same epoch, and gets the same deaths, also if shmctl is killed at any point.
func (s *session) inArena(name string, snap *snapshot, wait time.Duration, work func(a *arena.Arena) error) error {
	if unlocked := snap.Unlocked(); len(unlocked) > 0 {
		return refused{fmt.Sprintf("%s has no byte lock on this file, although its process exists: use the path by which it opened the arena; %s says more",
			snap.Title(unlocked[0]), "shmctl waits "+diagnose.Quote(name))}
	}
	ctx, stop := context.WithTimeout(s.ctx, wait)
	defer stop()
	first, result := false, error(nil)
	a, err := join(ctx, name, func(a *arena.Arena, _ arena.Epoch) error {
		first, result = true, work(a)
		return errLeftToApplication
	})
	if errors.Is(err, shmsync.ErrNotSupported) { // where byte locks do not work there are no epochs
		a, err = join(ctx, name, nil)
	}
	switch {
	case first:
		return errors.Join(result, writeBack(name))
	case errors.Is(err, context.DeadlineExceeded):
		return refused{fmt.Sprintf("%v; not joined within %v; %s says more", err, wait, snap.Command("waits", nil))}
	case errors.Is(err, shmsync.ErrNoSpace):
		return withoutSlot(err, snap)
	case err != nil:
		return err
	}
	defer a.Close()
	return work(a)
}

// withoutSlot explains the error of a join that found no free slot. If living participants have all slots, the error
// names them.
func withoutSlot(err error, snap *snapshot) error {
	var in []string
	for _, p := range snap.Participants {
		if !snap.IsGone(p.Name) {
			in = append(in, snap.Title(p.Name))
		}
	}
	if len(in) < snap.Info.MaxParticipants {
		return err
	}
	return refused{fmt.Sprintf("%v, by %s; shmctl needs a slot, too: end one of them, or let one of them do the work", err, listed(in))}
}

// writeBack makes the kernel write the file of an arena to its disk. The last Close of an epoch does this, too. But
// shmctl has changed the file without an epoch, so a Close of shmctl does not.
func writeBack(name string) error {
	f, err := openRegular(pathOfArgument(name))
	if err != nil {
		return nil // another process has removed the file
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EROFS) {
		return err
	}
	return nil
}

// join makes this process a participant of an arena. Packages shm and arena refuse a file that belongs neither to this
// user nor to root. The owner of such a file could truncate it, which would crash a process that has it mapped. If root
// runs shmctl, root has asked for exactly this file, so shmctl trusts the owner of the file. At worst, this owner
// crashes shmctl. Another user may replace the file before package shm opens it. So package shm checks that the owner
// is still the same.
func join(ctx context.Context, name string, onFirst func(*arena.Arena, arena.Epoch) error) (*arena.Arena, error) {
	opts := &arena.Options{Label: "shmctl", OnFirst: onFirst}
	path := pathOfArgument(name)
	if st, err := os.Stat(path); err == nil && os.Geteuid() == 0 {
		opts.TrustUIDs = []uint32{st.Sys().(*syscall.Stat_t).Uid}
	}
	if path != name {
		return arena.AttachContext(ctx, name, opts)
	}
	seg, err := openPath(path, &shm.Options{TrustUIDs: opts.TrustUIDs})
	if err != nil {
		return nil, err
	}
	return arena.FromSegmentContext(ctx, seg, opts)
}

// openPath opens a file by its path. The path may also be that of an open file of a process below /proc: a memfd and
// a removed file have no other path. Such a path looks like a symbolic link, which package shm does not follow.
func openPath(path string, opts *shm.Options) (*shm.Segment, error) {
	if ok, _ := filepath.Match("/proc/*/fd/*", path); !ok {
		return shm.OpenAt(path, opts)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return shm.FromFile(f, opts)
}
