package diagnose

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// controlGroups finds the control groups of processes that have a certain controller.
type controlGroups struct {
	proc       string // where /proc is mounted
	controller string // its name in version 1
	mounts     []groupMount
	read       bool
}

// groupMount is a mount of a hierarchy of control groups.
type groupMount struct {
	version int    // 1 for the hierarchy of the controller in version 1; 2 for version 2
	root    string // the group at the mount point, as in /proc/PID/cgroup
	point   string // where it is mounted
}

// controlGroup is a control group that is visible here.
type controlGroup struct {
	version int
	point   string // where its hierarchy is mounted
	dir     string
}

// of returns the control groups of a process that are visible here.
func (g *controlGroups) of(pid int) (found []controlGroup) {
	groups, err := os.ReadFile(g.proc + "/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(groups)) {
		part := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(part) != 3 {
			continue
		}
		version := 0
		if part[0] == "0" && part[1] == "" {
			version = 2
		} else if slices.Contains(strings.Split(part[1], ","), g.controller) {
			version = 1
		}
		if m, below, ok := g.mount(version, part[2]); ok {
			found = append(found, controlGroup{m.version, m.point, filepath.Join(m.point, below)})
		}
	}
	return found
}

// mount returns the mount that shows a control group, and the path of the group below the mount point.
func (g *controlGroups) mount(version int, group string) (m groupMount, below string, ok bool) {
	if !g.read {
		g.read = true
		b, _ := os.ReadFile(g.proc + "/self/mountinfo")
		g.mounts = groupMounts(string(b), g.controller)
	}
	for _, m := range g.mounts {
		below, under := strings.CutPrefix(group, strings.TrimSuffix(m.root, "/"))
		if m.version == version && under && (below == "" || below[0] == '/') && !strings.Contains(below, "/..") {
			return m, below, true
		}
	}
	return m, "", false
}

// groupMounts returns the hierarchies that have a controller. The text has the form of /proc/self/mountinfo.
func groupMounts(text, controller string) (all []groupMount) {
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
		case f[0] == "cgroup" && slices.Contains(strings.Split(f[2], ","), controller):
			version = 1
		default:
			continue
		}
		all = append(all, groupMount{version, unescape(m[3]), unescape(m[4])})
	}
	return all
}

// upwards returns the directories of a group and of the groups above it, up to the mount point.
func (g controlGroup) upwards() (dirs []string) {
	for at, below := g.dir, ""; at != below && strings.HasPrefix(at, g.point); at, below = filepath.Dir(at), at {
		dirs = append(dirs, at)
	}
	return dirs
}
