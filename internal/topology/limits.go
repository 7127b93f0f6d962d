package topology

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// limits reads which CPUs, memory and CPU time this process may use.
func (r *reader) limits() {
	l := &r.t.Limits
	const status = "proc/self/status"
	f := r.fields(status, "Cpus_allowed", "Cpus_allowed_list", "Mems_allowed", "Mems_allowed_list", "Seccomp")
	l.CPUs = r.allowed(f, "Cpus_allowed", "cpuset.cpus.effective", r.t.IDs())
	l.Nodes = r.allowed(f, "Mems_allowed", "cpuset.mems.effective", r.t.NodeIDs())
	l.Filter = f["Seccomp"] == "2"
	groups, _ := r.text("proc/self/cgroup")
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 {
			r.cgroup(parts[1], parts[2])
		}
	}
}

// allowed returns the CPUs or nodes that this process may use, among those in the parameter all. It reads them from the
// status of the process, or else from the root cgroup. If neither has a list, this process may use all of them.
func (r *reader) allowed(status map[string]string, key, cpuset string, all []int) []int {
	const file = "proc/self/status"
	list, err := ParseList(status[key+"_list"])
	if err == nil && len(list) == 0 && status[key] != "" {
		list, err = ParseMask(status[key])
	}
	if err != nil {
		r.repair("of limits", "%s: %s: %v: all are taken as allowed", file, key, err)
		list = nil
	}
	if len(list) == 0 {
		list, _ = r.list("sys/fs/cgroup/" + cpuset)
	}
	list = slices.DeleteFunc(list, func(id int) bool { return !slices.Contains(all, id) })
	if len(list) == 0 {
		return all
	}
	return list
}

// cgroup reads the limits of a cgroup and of its ancestors. For version 2 of cgroups, the parameter controllers is
// empty. For version 1, it names the controllers of the hierarchy to read.
func (r *reader) cgroup(controllers, name string) {
	const root = "sys/fs/cgroup"
	for dir := path.Clean("/" + name); ; dir = path.Dir(dir) {
		switch {
		case controllers == "":
			for _, base := range []string{root, root + "/unified"} {
				r.quota(path.Join(base, dir, "cpu.max"), path.Join(base, dir, "cpu.max"))
				r.memory(path.Join(base, dir, "memory.max"))
				r.pids(path.Join(base, dir, "pids.max"))
			}
		case strings.Contains(","+controllers+",", ",cpu,"):
			base := path.Join(root, "cpu", dir)
			r.quota(base+"/cpu.cfs_quota_us", base+"/cpu.cfs_period_us")
		case controllers == "memory":
			r.memory(path.Join(root, "memory", dir, "memory.limit_in_bytes"))
		case controllers == "pids":
			r.pids(path.Join(root, "pids", dir, "pids.max"))
		}
		if dir == "/" {
			return
		}
	}
}

// quota lowers the limit of CPU time to the quota in a file, if the quota is lower. Version 2 of cgroups has the quota
// and its period in one file, such as "max 100000" or "150000 100000". Version 1 has them in two files.
func (r *reader) quota(file, periodFile string) {
	text, ok := r.text(file)
	if !ok {
		return
	}
	if periodFile != file {
		period, _ := r.text(periodFile)
		text += " " + period
	}
	f := strings.Fields(text)
	if len(f) != 2 || f[0] == "max" || f[0] == "-1" {
		return
	}
	quota, err := strconv.ParseFloat(f[0], 64)
	period, err2 := strconv.ParseFloat(f[1], 64)
	if err != nil || err2 != nil || quota <= 0 || period <= 0 {
		r.repair("of limits", "%s: %q is no share of time: it limits nothing", file, text)
		return
	}
	if q := quota / period; r.t.Limits.Quota == 0 || q < r.t.Limits.Quota {
		r.t.Limits.Quota = q
	}
}

// unlimited is a little less than the value in the files of cgroups version 1 that means no limit.
const unlimited = 1 << 60

func (r *reader) memory(file string) { r.least(file, "number of bytes", &r.t.Limits.Memory) }

func (r *reader) pids(file string) { r.least(file, "number of processes", &r.t.Limits.Pids) }

// least sets the limit to the number in a file, if that number is lower than the limit.
func (r *reader) least(file, what string, limit *int64) {
	text, ok := r.text(file)
	if !ok || text == "max" {
		return
	}
	v, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil || v < 0:
		r.repair("of limits", "%s: %q is no %s: it limits nothing", file, text, what)
	case v < unlimited && (*limit == 0 || v < *limit):
		*limit = v
	}
}

// settings reads the settings of the kernel.
func (r *reader) settings() {
	s := &r.t.Settings
	s.Isolated, _ = r.list(cpuDir + "/isolated")
	if text, _ := r.text(cpuDir + "/nohz_full"); text != "(null)" { // some kernels write this for an empty list
		s.NoHz, _ = r.list(cpuDir + "/nohz_full")
	}
	s.THP = chosen(r.text(mmDir + "/transparent_hugepage/enabled"))
	s.ShmemTHP = chosen(r.text(mmDir + "/transparent_hugepage/shmem_enabled"))
	s.NUMABalancing = r.number("proc/sys/kernel/numa_balancing", 0) != 0
	s.Governor, _ = r.text(cpuDir + "/cpu0/cpufreq/scaling_governor")
	r.t.Kernel, _ = r.text("proc/sys/kernel/osrelease")
	f := r.fields("proc/cpuinfo", "model name", "CPU part", "CPU implementer")
	r.t.Model = f["model name"]
	if r.t.Model == "" && f["CPU part"] != "" {
		r.t.Model = "CPU part " + f["CPU part"] + " of " + f["CPU implementer"]
	}
}

// chosen returns the word in brackets. For example, it returns madvise for the text "always [madvise] never".
func chosen(text string, _ bool) string {
	_, rest, ok := strings.Cut(text, "[")
	word, _, _ := strings.Cut(rest, "]")
	if !ok {
		return text
	}
	return word
}
