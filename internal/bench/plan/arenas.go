//go:build linux

package plan

import (
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// arenaMemfd is the name for memory in a memfd, which needs no directory. It is the default, so keys of measurements
// omit it.
const arenaMemfd = "memfd"

// arenaNeeds is the space that a directory must have for the memory of a measurement. It is enough for a subject of
// the library, and for a primitive of the host.
const arenaNeeds = bench.ArenaLeast + control.PeerBytes

// checkArenas checks that a file can be created in each directory of the list Arenas. It converts the list to the form
// that measurements use.
func (o *Options) checkArenas() error {
	var dirs, names []string
	for _, dir := range o.Arenas {
		switch {
		case dir == arenaMemfd:
			dir = ""
		case !filepath.IsAbs(dir):
			return fmt.Errorf("--arena %q: want %s or the path of a directory from the root", dir, arenaMemfd)
		default:
			dir = filepath.Clean(dir)
			f, err := control.NewFileIn(dir, 1)
			if err != nil {
				return fmt.Errorf("--arena %q: %w", dir, err)
			}
			f.Close()
			var fs unix.Statfs_t
			err = unix.Statfs(dir, &fs)
			if free := int64(fs.Bavail) * int64(fs.Bsize); err == nil && fs.Blocks > 0 && free < arenaNeeds {
				return fmt.Errorf("--arena %q: %d KiB are free, and a cell needs %d MiB: give it more room, or use %s", dir, free>>10, arenaNeeds>>20, arenaMemfd)
			}
		}
		if name := bench.ArenaName(dir); slices.Contains(names, name) {
			return fmt.Errorf("--arena: two of %v have the same name in keys of cells", o.Arenas)
		}
		dirs, names = append(dirs, dir), append(names, bench.ArenaName(dir))
	}
	o.Arenas = dirs
	return nil
}

// arenas returns the directories in which the cells of a scenario put their memory. The user can choose them only for a
// scenario that is Movable.
func (o *Options) arenas(sc *bench.Scenario) []string {
	if !Movable(sc.Name) {
		return []string{""}
	}
	return bench.Or(o.Arenas, "")
}

// everywhere returns a copy of each cell for each directory in which the scenario is to put its memory.
func (o *Options) everywhere(sc *bench.Scenario, cells []*bench.Cell) []*bench.Cell {
	var all []*bench.Cell
	for _, dir := range o.arenas(sc) {
		for _, c := range cells {
			there := *c
			there.Arena = dir
			all = append(all, &there)
		}
	}
	return all
}

// Movable reports whether the flag --arena, which chooses a directory for the memory, has an effect on a scenario.
func Movable(scenario string) bool {
	return !slices.Contains([]string{"mem", "matrix", "home", "stream"}, scenario)
}
