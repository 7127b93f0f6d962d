package diagnose

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// freezer finds out which processes are frozen by a control group, as "docker pause" and "systemctl freeze" do it. A
// frozen process makes no progress, and no signal continues it. Its state looks like that of a process that sleeps.
type freezer struct {
	proc   string // where /proc is mounted
	mounts []groupMount
	read   bool
	known  map[string]freeze // maps the directory of a control group to what its files say
}

// groupMount is a mount of a hierarchy of control groups.
type groupMount struct {
	version int    // 1 for the freezer hierarchy of version 1; 2 for version 2
	root    string // the group at the mount point, as in /proc/PID/cgroup
	point   string // where it is mounted
}

// freeze says whether a control group is frozen, and what thaws it.
type freeze struct {
	frozen bool
	file   string // the file that thaws it; empty if it is not visible here
	value  string // what to write to the file
}

// of returns the freeze of a process, or the zero value if no control group freezes the process.
func (z *freezer) of(pid int) (f freeze) {
	groups, err := os.ReadFile(z.proc + "/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return f
	}
	for line := range strings.Lines(string(groups)) {
		part := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(part) != 3 {
			continue
		}
		version := 0
		if part[0] == "0" && part[1] == "" {
			version = 2
		} else if slices.Contains(strings.Split(part[1], ","), "freezer") {
			version = 1
		}
		if m, below, ok := z.mount(version, part[2]); ok {
			if f = z.group(m, below); f.frozen {
				return f
			}
		}
	}
	return freeze{}
}

// mount returns the mount that shows a control group, and the path of the group below the mount point.
func (z *freezer) mount(version int, group string) (m groupMount, below string, ok bool) {
	if !z.read {
		z.read, z.known = true, map[string]freeze{}
		b, _ := os.ReadFile(z.proc + "/self/mountinfo")
		z.mounts = groupMounts(string(b))
	}
	for _, m := range z.mounts {
		below, under := strings.CutPrefix(group, strings.TrimSuffix(m.root, "/"))
		if m.version == version && under && (below == "" || below[0] == '/') && !strings.Contains(below, "/..") {
			return m, below, true
		}
	}
	return m, "", false
}

// groupMounts returns the hierarchies that have a freezer. The text has the form of /proc/self/mountinfo.
func groupMounts(text string) (all []groupMount) {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace
	for line := range strings.Lines(text) {
		mount, fs, _ := strings.Cut(line, " - ")
		m, f := strings.Fields(mount), strings.Fields(fs)
		if len(m) < 5 || len(f) < 3 {
			continue
		}
		version := 0
		switch {
		case f[0] == "cgroup2":
			version = 2
		case f[0] == "cgroup" && slices.Contains(strings.Split(f[2], ","), "freezer"):
			version = 1
		default:
			continue
		}
		all = append(all, groupMount{version, unescape(m[3]), unescape(m[4])})
	}
	return all
}

// group returns whether a control group is frozen. A group is also frozen if a group above it is. The result names the
// highest group that was frozen by itself.
func (z *freezer) group(m groupMount, below string) (f freeze) {
	dir := filepath.Join(m.point, below)
	if f, ok := z.known[dir]; ok {
		return f
	}
	state, self, on := "freezer.state", "freezer.self_freezing", "THAWED"
	if m.version == 2 {
		state, self, on = "cgroup.events", "cgroup.freeze", "0"
	}
	b, _ := os.ReadFile(filepath.Join(dir, state))
	f.frozen = strings.HasPrefix(string(b), "FROZEN") || strings.Contains("\n"+string(b), "\nfrozen 1")
	for at, above := dir, ""; f.frozen && at != above && strings.HasPrefix(at, m.point); at, above = filepath.Dir(at), at {
		b, err := os.ReadFile(filepath.Join(at, self))
		if err == nil && strings.TrimSpace(string(b)) == "1" {
			f.value, f.file = on, filepath.Join(at, "cgroup.freeze") // the highest one wins
			if m.version == 1 {
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
