//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/diagnose"
	_ "github.com/shmsync/shmsync/prims" // registers the kinds of objects of package prims
)

// source is an arena or a dump, of which snapshots can be taken.
type source struct {
	ins  *arenakernel.Inspector
	opts diagnose.Options
}

// open opens the arena or the dump that the argument ARENA of a command names.
func open(name string) (*source, error) {
	if s, err := openDump(name); s != nil || err != nil {
		return s, err
	}
	ins, err := arenakernel.Inspect(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; shmctl ls lists the arenas of this host", err)
	}
	if err != nil {
		return nil, err
	}
	return &source{ins: ins}, nil
}

func (s *source) Close() error { return s.ins.Close() }

// isDump reports whether the source is a dump.
func (s *source) isDump() bool { return s.opts.Dump != nil }

// look takes a snapshot without reading the arena again.
func (s *source) look() *snapshot { return diagnose.Look(s.ins, s.opts) }

// again reads the present state of the arena, and takes a snapshot of it.
func (s *source) again() (*snapshot, error) {
	if err := s.ins.Refresh(); err != nil {
		return nil, err
	}
	return s.look(), nil
}

// sure takes two snapshots. It returns the findings of the first snapshot that the second snapshot confirms.
func (s *source) sure() ([]finding, *snapshot, error) { return diagnose.Confirm(s.look(), s.again) }
