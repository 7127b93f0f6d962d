//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/shm"
)

type (
	rmCmd struct {
		Arena string `arg:"" help:"Name or path."`
		Force bool   `help:"Also if a process is in it, or may be. Such processes keep what they have mapped; later ones get another arena."`
	}
	deleteCmd struct {
		Arena string `arg:"" help:"Name or path."`
		Name  string `arg:"" help:"Name of the object, or its offset."`

		Wait time.Duration `default:"5s" help:"How long to wait for a process that begins an epoch."`
	}
)

// Run deletes an object.
func (c *deleteCmd) Run(s *session) error {
	src, err := open(c.Arena)
	if err != nil {
		return err
	}
	defer src.Close()
	if src.isDump() {
		return refused{c.Arena + " is a dump"}
	}
	snap := src.look()
	o, err := find(snap, c.Name)
	if err != nil {
		return err
	}
	var in []string
	for _, name := range o.OpenBy {
		if !snap.IsGone(name) {
			in = append(in, snap.Title(name))
		}
	}
	if len(in) > 0 {
		return refused{fmt.Sprintf("%s %s is open in %s", o.Type, o.Name, listed(in))}
	}
	err = s.inArena(c.Arena, snap, c.Wait, func(a *arena.Arena) error { return deleteObject(a, o) })
	if err != nil {
		return err
	}
	return s.did("delete", fmt.Sprintf("deleted %s %s, %s", o.Type, o.Name, size(o.Size)))
}

// deleteObject deletes an object of a snapshot. It leaves alone an object that another process has made at the same
// offset since.
func deleteObject(a *arena.Arena, o *object) error {
	obj, err := objectOf(a, o)
	if err != nil {
		return err
	}
	(*arenakernel.Arena)(a).CloseObject(obj)
	err = a.DeleteObject(arena.Object(obj))
	if errors.Is(err, syscall.EBUSY) {
		return refused{err.Error()}
	}
	return err
}

// listed joins names for a sentence. If there are more than six names, it gives the first five and the number of the
// others.
func listed(names []string) string {
	const first = 5
	if left := len(names) - first; left > 1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:first], ", "), left)
	}
	return strings.Join(names, ", ")
}

// Run removes an arena.
func (c *rmCmd) Run(s *session) error {
	path := c.Arena
	if !strings.Contains(path, "/") {
		if err := shm.ValidName(path); err != nil {
			return err
		}
		path = shm.Dir + "/" + path
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if err := mayUnlink(path, info); err != nil {
		return err
	}
	if c.Force {
		if err := syscall.Unlink(path); err != nil { // os.Remove would also remove a directory
			return &os.PathError{Op: "remove", Path: path, Err: err}
		}
		return s.did("rm", "removed "+path)
	}
	if why := inUse(path); why != "" {
		return refused{path + ": " + why + "; not removed without --force"}
	}
	// A process may have joined since the check above. Remove checks again, and no process can join during this check.
	switch err := arena.Remove(path); {
	case errors.Is(err, syscall.EBUSY), errors.Is(err, shmsync.ErrIncompatible):
		return refused{err.Error() + "; not removed without --force"}
	case err != nil:
		return err
	}
	return s.did("rm", "removed "+path)
}

// mayUnlink returns an error if this user may not remove a file from its directory, not even with --force. The error says
// which users may.
func mayUnlink(path string, file os.FileInfo) error {
	dir, err := os.Stat(filepath.Dir(path))
	euid := os.Geteuid()
	if err != nil || euid == 0 {
		return nil // the removal reports the error, if there is one
	}
	ofFile, ofDir := int(file.Sys().(*syscall.Stat_t).Uid), int(dir.Sys().(*syscall.Stat_t).Uid)
	refusal, owner := unix.Faccessat(unix.AT_FDCWD, filepath.Dir(path), unix.W_OK|unix.X_OK, unix.AT_EACCESS), ofDir
	if refusal == nil && dir.Mode()&os.ModeSticky != 0 && euid != ofFile && euid != ofDir {
		refusal, owner = syscall.EPERM, ofFile
	}
	if !errors.Is(refusal, syscall.EACCES) && !errors.Is(refusal, syscall.EPERM) {
		return nil
	}
	who := ""
	if owner != 0 && owner != euid {
		who = fmt.Sprintf(", or the user %d", owner)
	}
	return fmt.Errorf("%w; root may do so%s", &os.PathError{Op: "remove", Path: path, Err: refusal}, who)
}

// inUse returns the reason why an arena should not be removed, or an empty string if there is none.
func inUse(path string) string {
	ins, err := arenakernel.Inspect(path)
	if err != nil {
		if other, ok := arenakernel.InspectOtherLayout(path); ok {
			if other.InUse {
				return fmt.Sprintf("a process has it open, with layout %d", other.Version)
			}
			return ""
		}
		return "it cannot be told whether it is in use: " + err.Error()
	}
	defer ins.Close()
	src := &source{ins: ins}
	snap := src.look()
	var in []string
	for _, p := range snap.Participants {
		if p.Life != arenakernel.LifeDead {
			in = append(in, snap.Title(p.Name))
		}
	}
	switch {
	case len(in) > 0:
		return "in use by " + listed(in)
	case ins.Damage() != nil:
		return "it cannot be told whether it is in use: " + ins.Damage().Error()
	}
	return ""
}
