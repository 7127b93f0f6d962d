package diagnose

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// freezer finds out which processes are frozen by a control group, as "docker pause" and "systemctl freeze" do it. A
// frozen process makes no progress, and no signal continues it. Its state looks like that of a process that sleeps.
type freezer struct {
	groups controlGroups
	known  map[string]freeze // maps the directory of a control group to what its files say
}

func newFreezer(proc string) freezer {
	return freezer{groups: controlGroups{proc: proc, controller: "freezer"}, known: map[string]freeze{}}
}

// freeze says whether a control group is frozen, and what thaws it.
type freeze struct {
	frozen bool
	file   string // the file that thaws it; empty if it is not visible here
	value  string // what to write to the file
}

// of returns the freeze of a process, or the zero value if no control group freezes the process.
func (z *freezer) of(pid int) (f freeze) {
	for _, g := range z.groups.of(pid) {
		if f = z.group(g); f.frozen {
			return f
		}
	}
	return freeze{}
}

// group returns whether a control group is frozen. A group is also frozen if a group above it is. The result names the
// highest group that was frozen by itself.
func (z *freezer) group(g controlGroup) (f freeze) {
	dir := g.dir
	if f, ok := z.known[dir]; ok {
		return f
	}
	state, self, on := "freezer.state", "freezer.self_freezing", "THAWED"
	if g.version == 2 {
		state, self, on = "cgroup.events", "cgroup.freeze", "0"
	}
	b, _ := os.ReadFile(filepath.Join(dir, state))
	f.frozen = strings.HasPrefix(string(b), "FROZEN") || strings.Contains("\n"+string(b), "\nfrozen 1")
	for _, at := range g.upwards() {
		if !f.frozen {
			break
		}
		b, err := os.ReadFile(filepath.Join(at, self))
		if err == nil && strings.TrimSpace(string(b)) == "1" {
			f.value, f.file = on, filepath.Join(at, "cgroup.freeze") // the highest one wins
			if g.version == 1 {
				f.file = filepath.Join(at, state)
			}
		}
	}
	z.known[dir] = f
	return f
}

// command returns the shell command that thaws the control group. It is empty if the group is not visible here.
func (f freeze) command() string {
	if f.file == "" {
		return ""
	}
	return fmt.Sprintf("echo %s > %s", f.value, Quote(f.file))
}
