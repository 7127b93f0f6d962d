package topology

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Where the files are.
const (
	cpuDir  = "sys/devices/system/cpu"
	nodeDir = "sys/devices/system/node"
	mmDir   = "sys/kernel/mm"
	online  = cpuDir + "/online"
)

// Host reads the topology of this host.
func Host() (*Topology, error) { return Read(os.DirFS("/")) }

// Recorded reads a tree that Record wrote, or one with the same files.
func Recorded(dir string) (*Topology, error) {
	if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(online))); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is no recorded tree: it has no %s", dir, online)
		}
		return nil, err
	}
	t, err := Read(os.DirFS(dir))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return t, nil
}

// Read reads a topology from a tree whose root is that of a host. Files that are missing
// leave their fields empty, or are guessed with a note; files that make no sense are an
// error.
func Read(fsys fs.FS) (*Topology, error) {
	t, _, err := read(fsys)
	return t, err
}

// Record writes the files that Read reads to a directory, which it makes: no others, and
// of long ones only the lines that matter.
func Record(fsys fs.FS, dir string) error {
	_, kept, err := read(fsys)
	if err != nil {
		return err
	}
	for name, text := range kept {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(to, []byte(text), 0o666); err != nil {
			return err
		}
	}
	return nil
}

func read(fsys fs.FS) (*Topology, map[string]string, error) {
	r := &reader{fsys: fsys, kept: map[string]string{}, t: new(Topology)}
	r.cpus()
	r.caches()
	r.nodes()
	r.limits()
	r.settings()
	if r.err != nil {
		return nil, nil, r.err
	}
	return r.t, r.kept, nil
}

// reader reads files and keeps what it has read. Its first error stays.
type reader struct {
	fsys fs.FS
	kept map[string]string
	t    *Topology
	err  error
}

func (r *reader) fail(name, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %s", name, fmt.Sprintf(format, args...))
	}
}

func (r *reader) note(format string, args ...any) {
	r.t.Notes = append(r.t.Notes, fmt.Sprintf(format, args...))
}

// text gives a file without the space around it; false where it cannot be read.
func (r *reader) text(name string) (string, bool) {
	if !fs.ValidPath(name) {
		return "", false
	}
	b, err := fs.ReadFile(r.fsys, name)
	if err != nil {
		return "", false
	}
	r.kept[name] = string(b)
	return strings.TrimSpace(string(b)), true
}

// fields gives the values of the lines of a file that begin with the keys: the first of
// each.
func (r *reader) fields(name string, keys ...string) map[string]string {
	b, err := fs.ReadFile(r.fsys, name)
	if err != nil {
		return nil
	}
	found := map[string]string{}
	var kept strings.Builder
	for line := range strings.Lines(string(b)) {
		k, v, ok := strings.Cut(line, ":")
		k = strings.TrimSpace(k)
		if _, seen := found[k]; ok && !seen && slices.Contains(keys, k) {
			found[k] = strings.TrimSpace(v)
			kept.WriteString(line)
		}
	}
	r.kept[name] = kept.String()
	return found
}

// number gives the number in a file, or what else it is to be where there is none.
func (r *reader) number(name string, otherwise int) int {
	text, ok := r.text(name)
	if !ok || text == "" {
		return otherwise
	}
	v, err := strconv.Atoi(text)
	if err != nil {
		r.fail(name, "%q is no number", text)
		return otherwise
	}
	return v
}

func (r *reader) list(name string) ([]int, bool) {
	text, ok := r.text(name)
	if !ok {
		return nil, false
	}
	list, err := ParseList(text)
	if err != nil {
		r.fail(name, "%v", err)
	}
	return list, true
}

func (r *reader) cpus() {
	ids, ok := r.list(online)
	if !ok || len(ids) == 0 {
		r.fail(online, "no CPU is online")
		return
	}
	present, _ := r.list(cpuDir + "/present")
	for _, id := range present {
		if !slices.Contains(ids, id) {
			r.t.Offline = append(r.t.Offline, id)
		}
	}
	cores := map[string]int{}
	threads := map[int]int{}
	told := false
	for _, id := range ids {
		dir := fmt.Sprintf("%s/cpu%d", cpuDir, id)
		c := CPU{ID: id, Package: max(r.number(dir+"/topology/physical_package_id", 0), 0), Die: max(r.number(dir+"/topology/die_id", 0), 0)}
		siblings, ok := r.text(dir + "/topology/core_cpus_list")
		if !ok {
			siblings, ok = r.text(dir + "/topology/thread_siblings_list")
		}
		if list, err := ParseList(siblings); ok && (err != nil || !slices.Contains(list, id)) {
			r.fail(dir+"/topology", "%q is no list of threads of the core of CPU %d", siblings, id)
		}
		told = told || ok
		if !ok {
			siblings = strconv.Itoa(id)
		}
		core, known := cores[siblings]
		if !known {
			core = len(cores)
			cores[siblings] = core
		}
		c.Core, c.Thread = core, threads[core]
		threads[core]++
		c.Capacity = r.number(dir+"/cpu_capacity", 0)
		c.MaxMHz = r.number(dir+"/cpufreq/cpuinfo_max_freq", 0) / 1000
		r.t.CPUs = append(r.t.CPUs, c)
	}
	if !told {
		r.note("the host does not say which CPUs share a core: each is taken for a core of one package")
	}
}

// maxCaches bounds the caches of a CPU that are looked at.
const maxCaches = 16

// caches finds the last level of each CPU.
func (r *reader) caches() {
	at := map[string]int{}
	guessed := false
	for i := range r.t.CPUs {
		c := &r.t.CPUs[i]
		best := LLC{}
		shared := fmt.Sprintf("package %d", c.Package)
		for index := range maxCaches {
			dir := fmt.Sprintf("%s/cpu%d/cache/index%d", cpuDir, c.ID, index)
			kind, ok := r.text(dir + "/type")
			if !ok {
				break
			}
			level := r.number(dir+"/level", 0)
			list, ok := r.text(dir + "/shared_cpu_list")
			if kind == "Instruction" || !ok || level <= best.Level {
				continue
			}
			if ids, err := ParseList(list); err != nil || !slices.Contains(ids, c.ID) {
				r.fail(dir+"/shared_cpu_list", "%q is no list of CPUs with CPU %d", list, c.ID)
			}
			best.Level, shared, best.Bytes = level, fmt.Sprintf("L%d %s", level, list), 0
			if size, ok := r.text(dir + "/size"); ok {
				var err error
				if best.Bytes, err = parseSize(size); err != nil {
					r.fail(dir+"/size", "%v", err)
				}
			}
		}
		guessed = guessed || best.Level == 0
		n, known := at[shared]
		if !known {
			n = len(r.t.LLCs)
			at[shared] = n
			r.t.LLCs = append(r.t.LLCs, best)
		}
		c.LLC = n
		r.t.LLCs[n].CPUs = append(r.t.LLCs[n].CPUs, c.ID)
	}
	if guessed {
		r.note("the host does not say which CPUs share caches: those of a package are taken for one group")
	}
}

func (r *reader) nodes() {
	ids, ok := r.list(nodeDir + "/online")
	if !ok || len(ids) == 0 {
		r.oneNode()
		return
	}
	placed := map[int]bool{}
	for _, id := range ids {
		dir := fmt.Sprintf("%s/node%d", nodeDir, id)
		n := Node{ID: id, Weight: r.number(fmt.Sprintf("%s/mempolicy/weighted_interleave/node%d", mmDir, id), 0)}
		n.CPUs, _ = r.list(dir + "/cpulist")
		for _, cpu := range n.CPUs {
			i := slices.IndexFunc(r.t.CPUs, func(c CPU) bool { return c.ID == cpu })
			if i < 0 || placed[cpu] {
				r.fail(dir+"/cpulist", "CPU %d is not online, or of another node too", cpu)
				continue
			}
			placed[cpu] = true
			r.t.CPUs[i].Node = id
		}
		if text, ok := r.text(dir + "/distance"); ok {
			for field := range strings.FieldsSeq(text) {
				d, err := strconv.Atoi(field)
				if err != nil || d < 0 {
					r.fail(dir+"/distance", "%q is no distance", field)
				}
				n.Distance = append(n.Distance, d)
			}
			if len(n.Distance) != len(ids) {
				r.fail(dir+"/distance", "has %d distances, and %d nodes are online", len(n.Distance), len(ids))
			}
		}
		prefix := fmt.Sprintf("Node %d ", id)
		memory := r.fields(dir+"/meminfo", prefix+"MemTotal", prefix+"MemFree")
		n.Bytes, n.Free = r.bytes(dir, memory[prefix+"MemTotal"]), r.bytes(dir, memory[prefix+"MemFree"])
		n.HugePages = r.hugePages(dir + "/hugepages")
		n.Access = r.access(dir + "/access0/initiators")
		r.t.Nodes = append(r.t.Nodes, n)
	}
	for _, c := range r.t.CPUs {
		if !placed[c.ID] {
			r.fail(nodeDir, "CPU %d is of no node", c.ID)
		}
	}
}

// oneNode is what a kernel without NUMA has.
func (r *reader) oneNode() {
	r.note("the kernel knows no NUMA nodes: all is taken for one")
	memory := r.fields("proc/meminfo", "MemTotal", "MemFree")
	n := Node{Distance: []int{10}, Bytes: r.bytes("proc/meminfo", memory["MemTotal"]), Free: r.bytes("proc/meminfo", memory["MemFree"])}
	n.CPUs, n.HugePages = r.t.IDs(), r.hugePages(mmDir+"/hugepages")
	r.t.Nodes = []Node{n}
}

func (r *reader) bytes(name, text string) int64 {
	if text == "" {
		return 0
	}
	v, err := parseSize(text)
	if err != nil {
		r.fail(name, "%v", err)
	}
	return v
}

func (r *reader) hugePages(dir string) (pools []HugePool) {
	entries, err := fs.ReadDir(r.fsys, dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		size, ok := strings.CutPrefix(e.Name(), "hugepages-")
		if !ok {
			continue
		}
		p := HugePool{Bytes: r.bytes(dir, size)}
		p.Total = r.number(path.Join(dir, e.Name(), "nr_hugepages"), 0)
		p.Free = r.number(path.Join(dir, e.Name(), "free_hugepages"), 0)
		pools = append(pools, p)
	}
	slices.SortFunc(pools, func(a, b HugePool) int { return cmp.Compare(a.Bytes, b.Bytes) })
	return pools
}

// access reads what HMAT says about a node; nil where there is none.
func (r *reader) access(dir string) *Access {
	entries, err := fs.ReadDir(r.fsys, dir)
	if err != nil {
		return nil
	}
	a := &Access{
		ReadLatency: r.number(dir+"/read_latency", 0), WriteLatency: r.number(dir+"/write_latency", 0),
		ReadBandwidth: r.number(dir+"/read_bandwidth", 0), WriteBandwidth: r.number(dir+"/write_bandwidth", 0),
	}
	for _, e := range entries {
		if number, ok := strings.CutPrefix(e.Name(), "node"); ok {
			if id, err := strconv.Atoi(number); err == nil {
				a.Initiators = append(a.Initiators, id)
				r.kept[path.Join(dir, e.Name())] = "" // a link there
			}
		}
	}
	slices.Sort(a.Initiators)
	if a.ReadLatency == 0 && a.WriteLatency == 0 && a.ReadBandwidth == 0 && a.WriteBandwidth == 0 && len(a.Initiators) == 0 {
		return nil
	}
	return a
}
