package diagnose

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// A foreignWait is a wait in another arena of a process that holds something in this arena.
type foreignWait struct {
	text    string   // what the process waits for
	command string   // shows the other arena
	on      []string // the holders of what the process waits for, in words
	pids    []int    // the processes of these holders
}

// mostFiles limits how many open files of a process shmctl examines for other arenas, and mostArenas how many of them it
// reads: a hostile process may have very many.
const (
	mostFiles  = 4096
	mostArenas = 16
)

// waitElsewhere returns a wait of a participant's process in another arena, or nil. It looks into each other arena that
// the process has open.
func (s *Snapshot) waitElsewhere(name string) *foreignWait {
	if w, known := s.elsewhere[name]; known {
		return w
	}
	var found *foreignWait
	i, ok := s.who[name]
	if ok && s.Participants[i].HostPID != 0 && s.opts.Dump == nil {
		found = s.findElsewhere(s.Participants[i].HostPID)
	}
	if s.elsewhere == nil {
		s.elsewhere = map[string]*foreignWait{}
	}
	s.elsewhere[name] = found
	return found
}

// showsFiles reports whether this user may see which files the process of a participant has open.
func (s *Snapshot) showsFiles(name string) bool {
	f, err := os.Open("/proc/" + strconv.Itoa(s.Participants[s.who[name]].HostPID) + "/fd")
	if err == nil {
		f.Close()
	}
	return !errors.Is(err, fs.ErrPermission)
}

func (s *Snapshot) findElsewhere(pid int) (found *foreignWait) {
	here, err := s.ins.File().Stat()
	if err != nil {
		return nil
	}
	seen := []os.FileInfo{here}
	fds, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/[0-9]*")
	for _, fd := range fds[:min(len(fds), mostFiles)] {
		info, err := os.Stat(fd)
		if err != nil || !info.Mode().IsRegular() || slices.ContainsFunc(seen, func(f os.FileInfo) bool { return os.SameFile(f, info) }) {
			continue
		}
		path := fd // a file that was removed, a memfd, and a file of another mount namespace have no other path
		if link, err := os.Readlink(fd); err == nil {
			if at, err := os.Stat(link); err == nil && os.SameFile(at, info) {
				path = link
			}
		}
		ins, err := arenakernel.Inspect(path)
		if err != nil {
			continue
		}
		w := Look(ins, Options{}).foreignWait(pid)
		ins.Close()
		if found == nil || w != nil && len(found.pids) == 0 {
			found = w
		}
		if seen = append(seen, info); len(seen) > mostArenas || found != nil && len(found.pids) > 0 {
			break
		}
	}
	return found
}

// foreignWait returns a wait of a process for this arena, or nil. It prefers a wait for something that another process
// holds.
func (s *Snapshot) foreignWait(pid int) (found *foreignWait) {
	for i := range s.Waits {
		w := &s.Waits[i]
		p, ok := s.who[w.Owner]
		if !ok || s.Participants[p].HostPID != pid || s.IsGone(w.Owner) {
			continue
		}
		f := &foreignWait{
			text:    fmt.Sprintf("%s of %s in the arena %s", Wants(w), w.Object, s.Info.Name),
			command: s.command("waits", nil),
		}
		for _, h := range w.OnHolds {
			owner := s.Holds[h].Owner
			if p, ok := s.who[owner]; ok && s.Participants[p].HostPID != pid {
				f.on = append(f.on, s.Title(owner))
				f.pids = append(f.pids, s.Participants[p].HostPID)
			}
		}
		if found == nil || len(f.on) > 0 {
			found = f
		}
		if len(f.on) > 0 {
			break
		}
	}
	return found
}

// behindElsewhere changes the finding about a hold of o whose process waits in another arena.
func (f *Finding) behindElsewhere(s *Snapshot, o *Object, owner, hold, waiters string, w *foreignWait) {
	f.Kind = LongHold
	f.Text = fmt.Sprintf("%s, and itself waits for %s", hold, w.text)
	if len(w.on) > 0 {
		f.Text += ", which " + strings.Join(w.on[:min(len(w.on), 3)], ", ") + " has"
	}
	f.Text += waiters
	for _, i := range o.Waits {
		p, ok := s.who[s.Waits[i].Owner]
		if ok && s.Participants[p].HostPID != 0 && slices.Contains(w.pids, s.Participants[p].HostPID) {
			f.Text += fmt.Sprintf("; %s waits for it: a deadlock through two arenas", s.Title(s.Waits[i].Owner))
			f.Advice = "end one of them; a death passes its holds on by the policies of the locks"
			f.end(s, owner)
			return
		}
	}
	f.Advice, f.Command = "see why that does not come", w.command
}
