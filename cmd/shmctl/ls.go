//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/shm"
)

type lsCmd struct {
	view
	Names bool `help:"Only the names, as -o name."`
	All   bool `short:"a" help:"Also arenas of processes: at other paths, in memfds, in other mount namespaces. Also files that are no arenas, and why."`
}

// Run lists the arenas.
func (c *lsCmd) Run(s *session) error {
	l := lister{s: s, d: s.begin("ls"), all: c.All, seen: map[fileID]bool{}}
	l.t = newTable(s.stdout, s.wide([]string{"ARENA", "SIZE", "USED", "USERS", "OBJECTS", "AGE", "HEALTH"}, "EPOCH", "NODES", "REAPS", "COUNTED", "PATH")...)
	l.addAll()
	err := error(nil)
	switch {
	case s.json:
		err = writeJSON(s.stdout, l.d)
	case c.Names || s.format == formatName:
		for _, a := range l.d.Arenas {
			if a.Removed == "" || c.All { // without --all, only arenas whose file was not removed
				fmt.Fprintln(s.stdout, a.Name)
			}
		}
	default:
		err = l.t.flush()
	}
	if err == nil && l.bad {
		err = status(exitTrouble)
	}
	return err
}

// lister collects the rows of the command ls.
type lister struct {
	s    *session
	d    *document
	t    *table
	all  bool
	bad  bool // an arena is in trouble, or could not be read
	seen map[fileID]bool
}

// entry is a file that may be an arena.
type entry struct {
	arg   string // the argument ARENA that names this file
	path  string
	size  int64
	place bool // the arena was found through a process that has it open

	info    arenaInfo
	err     error
	other   arenakernel.OtherLayout // set if the file is an arena of another layout
	isOther bool
}

// addAll adds the arenas of this host. If an arena is in trouble, its examination includes a pause between two
// snapshots. So that the pauses do not add up, the arenas are examined concurrently.
func (l *lister) addAll() {
	var all []*entry
	add := func(e entry) {
		if l.isNew(e.path) {
			all = append(all, &e)
		}
	}
	for _, info := range segments(l.s.stderr) {
		add(entry{arg: info.Name, path: pathOfArgument(info.Name), size: info.Size})
	}
	for _, path := range removedSegments() {
		add(entry{arg: path, path: path, place: true})
	}
	if l.all {
		for _, path := range otherPlaces() {
			add(entry{arg: path, path: path, place: true})
		}
	}
	var wg sync.WaitGroup
	free := make(chan struct{}, 16) // at most 16 at a time, because each snapshot has a copy of the arena
	for _, e := range all {
		free <- struct{}{}
		wg.Go(func() {
			if e.info, e.err = summary(e.arg); e.err != nil {
				e.other, e.isOther = arenakernel.InspectOtherLayout(e.arg)
			}
			<-free
		})
	}
	wg.Wait()
	for _, e := range all {
		l.entry(e)
	}
}

// entry adds a row for one file that may be an arena, after the file has been examined.
func (l *lister) entry(e *entry) {
	switch {
	case e.err == nil && e.place:
		l.row(e.info, noteOf(e))
	case e.err == nil:
		l.row(e.info, "")
	case e.isOther:
		l.otherLayout(diagnose.Clean(e.arg), e.other)
	case e.place, errors.Is(e.err, shmsync.ErrIncompatible) && !l.all:
		// The file belongs to another program, or the last user of the arena has just left.
	default:
		l.bad = l.bad || !errors.Is(e.err, shmsync.ErrIncompatible)
		l.row(arenaInfo{Name: diagnose.Clean(e.arg), Path: e.path, Size: e.size, Health: diagnose.ErrorText(e.err)}, "")
	}
}

// noteOf returns a note on the file of an arena that was found through a process, such as that it was removed.
func noteOf(e *entry) string {
	if e.info.Removed != "" {
		return removedNote(e.info.Removed)
	}
	if link, _ := os.Readlink(e.path); strings.HasPrefix(link, "/memfd:") {
		return "memfd " + diagnose.Clean(strings.TrimSuffix(strings.TrimPrefix(link, "/memfd:"), deleted))
	}
	return ""
}

func (l *lister) isNew(path string) bool {
	id, ok := fileIDOf(path)
	if !ok || l.seen[id] {
		return false
	}
	l.seen[id] = true
	return true
}

func (l *lister) otherLayout(name string, other arenakernel.OtherLayout) {
	a := otherArena(name, other)
	l.d.Arenas = append(l.d.Arenas, a)
	users := "none"
	if other.InUse {
		users = "some"
	}
	l.t.row(l.s.wide([]string{name, size(uint64(other.Size)), "", users, "", "", a.Health}, "", "", "", "", a.Path)...)
}

func (l *lister) row(a arenaInfo, note string) {
	l.d.Arenas = append(l.d.Arenas, a)
	health := a.Health
	if a.Layout != 0 { // otherwise Health is the text of an error
		l.bad = l.bad || health != "ok"
	}
	if note != "" {
		health += ", " + note
	}
	l.t.row(l.s.wide([]string{a.Name, size(uint64(a.Size)), size(a.Used), fmt.Sprintf("%d/%d", a.Participants, a.MaxParticipants),
		strconv.FormatUint(a.Objects, 10), diagnose.Age(sinceNs(l.d.Time, a.Created)), health},
		epochText(a), strconv.FormatUint(a.Nodes, 10), strconv.FormatUint(uint64(a.Deaths), 10), strconv.FormatBool(a.Counted), a.Path)...)
}

// otherArena returns the row of ls for an arena with another layout.
func otherArena(name string, l arenakernel.OtherLayout) arenaInfo {
	return arenaInfo{Name: name, Path: l.Path, Size: l.Size, Layout: l.Version,
		Health: fmt.Sprintf("layout %d, this shmctl reads %d", l.Version, arenakernel.LayoutVersion)}
}

// epochText returns the number of an arena's epoch, followed by "deaths" if a death was recorded since the epoch began.
func epochText(a arenaInfo) string {
	s := strconv.FormatUint(a.Epoch, 10)
	if a.Epoch != 0 && !a.Clean {
		s += ", deaths"
	}
	return s
}

// pathOfArgument returns the path of the arena that an argument names.
func pathOfArgument(arg string) string {
	if strings.Contains(arg, "/") {
		return arg
	}
	return shm.Dir + "/" + arg
}

// segments returns the segments of this host, sorted by name. The directory of segments may also contain arenas whose
// file name is not valid as the name of a segment. segments returns them with their path as the name, because commands
// find them only by their path.
func segments(stderr io.Writer) (all []shm.Info) {
	for info, err := range shm.List() {
		if err != nil {
			fmt.Fprintln(stderr, "shmctl:", err)
			continue
		}
		all = append(all, info)
	}
	entries, _ := os.ReadDir(shm.Dir) // List has reported the error
	for _, e := range entries {
		path := pathOfArgument(e.Name())
		if !e.Type().IsRegular() || shm.ValidName(e.Name()) == nil || !isArenaWith(path, unix.O_NOFOLLOW) {
			continue
		}
		if info, err := e.Info(); err == nil {
			all = append(all, shm.Info{Name: path, Size: info.Size()})
		}
	}
	slices.SortFunc(all, func(a, b shm.Info) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// summary examines an arena and returns its row of ls.
func summary(name string) (arenaInfo, error) {
	src, err := open(name)
	if err != nil {
		return arenaInfo{}, err
	}
	defer src.Close()
	f, snap, err := src.sure()
	if err != nil {
		return arenaInfo{}, err
	}
	snap.Info.Health = health(f)
	return snap.Info, nil
}
