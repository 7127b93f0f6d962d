//go:build linux

package main

import (
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/diagnose"
	_ "github.com/shmsync/shmsync/prims" // the kinds of its objects
)

// source is where snapshots are taken of.
type source struct {
	ins  *arenakernel.Inspector
	opts diagnose.Options
}

// open opens what is called ARENA.
func open(name string) (*source, error) {
	if s, err := openDump(name); s != nil || err != nil {
		return s, err
	}
	ins, err := arenakernel.Inspect(name)
	if err != nil {
		return nil, err
	}
	return &source{ins: ins}, nil
}

func (s *source) Close() error { return s.ins.Close() }

// isDump reports whether the source is a dump.
func (s *source) isDump() bool { return s.opts.Dump != nil }

// look takes a snapshot.
func (s *source) look() *snapshot { return diagnose.Look(s.ins, s.opts) }

// again takes another snapshot, of what is there now.
func (s *source) again() (*snapshot, error) {
	if err := s.ins.Refresh(); err != nil {
		return nil, err
	}
	return s.look(), nil
}

// sure takes a snapshot, and gives those findings that a later look confirms.
func (s *source) sure() ([]finding, *snapshot, error) { return diagnose.Confirm(s.look(), s.again) }
