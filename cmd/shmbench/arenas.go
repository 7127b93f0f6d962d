//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shmsync/shmsync/shm"
)

// arenaMemfd asks for memory without a file system, as is the case unless the user says
// otherwise; no key of a cell says so.
const arenaMemfd = "memfd"

// segmentPattern names the files of cells, which live no longer than a moment.
const segmentPattern = "shmbench-*"

// checkArenas sees that each directory takes a file, and makes the list what cells carry.
func (o *options) checkArenas() error {
	var dirs, names []string
	for _, dir := range o.Arenas {
		switch {
		case dir == arenaMemfd:
			dir = ""
		case !filepath.IsAbs(dir):
			return fmt.Errorf("--arena %q: want %s or the path of a directory from the root", dir, arenaMemfd)
		default:
			dir = filepath.Clean(dir)
			f, err := newFileIn(dir, 1)
			if err != nil {
				return fmt.Errorf("--arena %q: %w", dir, err)
			}
			f.Close()
		}
		if name := arenaName(dir); slices.Contains(names, name) {
			return fmt.Errorf("--arena: two of %v have the same name in keys of cells", o.Arenas)
		}
		dirs, names = append(dirs, dir), append(names, arenaName(dir))
	}
	o.Arenas = dirs
	return nil
}

// arenas are the places of the segment of each cell of a scenario; those of some have
// places of their own.
func (o *options) arenas(sc *scenario) []string {
	if !movable(sc.name) {
		return []string{""}
	}
	return or(o.Arenas, "")
}

// everywhere gives each cell for each of those places.
func (o *options) everywhere(sc *scenario, cells []*cell) []*cell {
	var all []*cell
	for _, dir := range o.arenas(sc) {
		for _, c := range cells {
			there := *c
			there.Arena = dir
			all = append(all, &there)
		}
	}
	return all
}

// movable tells whether --arena means something to a scenario.
func movable(scenario string) bool { return scenario != "mem" && scenario != "matrix" }

// arenaName is a directory as keys of cells and names of benchmarks may have it, as in
// dev:shm; empty for memory without one.
func arenaName(dir string) string {
	if len(dir) > 1 {
		dir = strings.TrimPrefix(dir, "/")
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._-", r):
			return r
		}
		return ':'
	}, dir)
}

// newFileIn makes a file in a directory that only its descriptor leads to.
func newFileIn(dir string, size int64) (*os.File, error) {
	f, err := os.CreateTemp(dir, segmentPattern)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Remove(f.Name()), f.Truncate(size)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// newSegmentIn makes a segment in a directory that only its descriptor leads to.
func newSegmentIn(dir string, size int64, format func(*shm.Segment) error) (*shm.Segment, error) {
	own, err := os.MkdirTemp(dir, segmentPattern)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(own, "arena")
	seg, err := shm.CreateAt(path, size, format, nil)
	if err = errors.Join(err, os.RemoveAll(own)); err != nil && seg != nil {
		seg.Close()
		seg = nil
	}
	return seg, err
}
