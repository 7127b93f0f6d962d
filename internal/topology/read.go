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

// The directories and files of a host that are read.
const (
	cpuDir  = "sys/devices/system/cpu"
	nodeDir = "sys/devices/system/node"
	mmDir   = "sys/kernel/mm"
	online  = cpuDir + "/online"
)

// Host reads the topology of this host.
func Host() (*Topology, error) { return Read(os.DirFS("/")) }

// Recorded reads the topology of a recorded host. The recording is a directory with the files of a system's root, a
// .tree file, a tar archive, or an XML file of lstopo.
func Recorded(name string) (*Topology, error) {
	if strings.HasSuffix(name, ".xml") {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		t, err := ReadXML(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return t, nil
	}
	src, err := open(name)
	if err != nil {
		return nil, err
	}
	t, _, err := read(src)
	if err != nil {
		return nil, fmt.Errorf("%s is no recorded tree: %w", name, err)
	}
	return t, nil
}

// Read reads the topology of a host from a tree that has the files of the host's root directory. It accepts every
// host with a CPU. If a fact is missing or contradicts others, Read guesses and adds a note.
func Read(fsys fs.FS) (*Topology, error) {
	t, _, err := read(system{fsys})
	return t, err
}

// Record copies the files that Read reads to the new directory dir. If the parameter from is empty, the files come
// from this host. Otherwise from is the path of a recording. Of long files, Record copies only the lines that Read
// uses.
func Record(from, dir string) error {
	src, err := source(system{os.DirFS("/")}), error(nil)
	if from != "" {
		src, err = open(from)
	}
	if err != nil {
		return err
	}
	_, kept, err := read(src)
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

func read(src source) (*Topology, map[string]string, error) {
	r := &reader{src: src, kept: map[string]string{}, t: new(Topology), repairs: map[string]*repairs{}}
	f := &facts{}
	r.cpus(f)
	if len(f.cpus) == 0 {
		return nil, nil, errNoCPU
	}
	r.nodes(f)
	r.assemble(f)
	r.limits()
	r.settings()
	r.writeNotes()
	return r.t, r.kept, nil
}

var errNoCPU = errors.New("it names no CPU that is online")

// reader reads files and keeps the text of those that it has read.
type reader struct {
	src     source
	kept    map[string]string
	t       *Topology
	repairs map[string]*repairs
	kinds   []string // kinds of repairs, in the order in which they first occurred
}

// repairs counts the repairs of one kind. A repair is a guess in place of a fact that the host reports wrongly. Only
// the text of the first repair is kept.
type repairs struct {
	first string
	n     int
}

// repair records that a fact is invalid, and what is assumed instead. All repairs of one kind appear as one note.
func (r *reader) repair(kind, format string, args ...any) {
	if r.repairs[kind] == nil {
		r.repairs[kind] = &repairs{first: fmt.Sprintf(format, args...)}
		r.kinds = append(r.kinds, kind)
	}
	r.repairs[kind].n++
}

func (r *reader) note(format string, args ...any) {
	r.t.Notes = append(r.t.Notes, fmt.Sprintf(format, args...))
}

func (r *reader) writeNotes() {
	for _, kind := range r.kinds {
		is := r.repairs[kind]
		if is.n > 1 {
			r.note("%s (and %d more %s)", is.first, is.n-1, kind)
			continue
		}
		r.note("%s", is.first)
	}
}

// text returns the text of a file without leading and trailing space and zero bytes. It returns false if the file
// cannot be read.
func (r *reader) text(name string) (string, bool) {
	b, ok := r.src.file(name)
	if !ok {
		return "", false
	}
	text := strings.Trim(string(b), "\x00 \t\r\n")
	r.kept[name] = text + "\n"
	return text, true
}

// fields reads a file with lines of the form KEY: VALUE, and returns the values of the given keys. If a key occurs
// several times, the first line counts.
func (r *reader) fields(name string, keys ...string) map[string]string {
	b, ok := r.src.file(name)
	if !ok {
		return nil
	}
	found := map[string]string{}
	var kept strings.Builder
	for line := range strings.Lines(string(b)) {
		k, v, ok := strings.Cut(strings.Trim(line, "\x00"), ":")
		k = strings.TrimSpace(k)
		if _, seen := found[k]; ok && !seen && slices.Contains(keys, k) {
			found[k] = strings.TrimSpace(v)
			kept.WriteString(strings.Trim(line, "\x00"))
		}
	}
	r.kept[name] = kept.String()
	return found
}

// number returns the number in a file. If the file contains no number, it returns the parameter otherwise.
func (r *reader) number(name string, otherwise int) int {
	text, ok := r.text(name)
	if !ok || text == "" {
		return otherwise
	}
	v, err := strconv.Atoi(text)
	if err != nil {
		r.repair("of numbers", "%s: %q is no number: it is not used", name, text)
		return otherwise
	}
	return v
}

// list returns the numbers of a list in a file. It returns false if the file has no valid list.
func (r *reader) list(name string) ([]int, bool) { return r.set(name, ParseList) }

// set returns the numbers of a list or of a mask in a file, ascending. parse decides which form the file has.
func (r *reader) set(name string, parse func(string) ([]int, error)) ([]int, bool) {
	text, ok := r.text(name)
	if !ok {
		return nil, false
	}
	list, err := parse(text)
	if err != nil {
		r.repair("of lists", "%s: %v: it is not used", name, err)
		return nil, false
	}
	slices.Sort(list)
	return slices.Compact(list), true
}

// either returns the numbers in the file that the parameter list names. If there is no such file, it reads the file
// that the parameter mask names, as older kernels have it.
func (r *reader) either(list, mask string) ([]int, bool) {
	if ids, ok := r.list(list); ok {
		return ids, true
	}
	return r.set(mask, ParseMask)
}

// numbered returns numbers from the names of the entries of a directory. It considers the names that consist of the
// prefix and a number.
func (r *reader) numbered(dir, prefix string) (ids []int) {
	for _, name := range r.src.names(dir) {
		if number, ok := strings.CutPrefix(name, prefix); ok {
			if id, err := strconv.ParseUint(number, 10, 31); err == nil && id < maxID {
				ids = append(ids, int(id))
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// onlineCPUs returns the CPUs that are online, and the CPUs that exist but are offline.
func (r *reader) onlineCPUs() (on, off []int) {
	present, _ := r.list(cpuDir + "/present")
	on, ok := r.list(online)
	if !ok || len(on) == 0 {
		on = nil
		for _, id := range r.numbered(cpuDir, "cpu") {
			if r.number(fmt.Sprintf("%s/cpu%d/online", cpuDir, id), 1) != 0 {
				on = append(on, id)
			} else if !slices.Contains(present, id) {
				present = append(present, id)
			}
		}
		if len(on) > 0 {
			r.repair("of lists", "%s is missing: each CPU was asked", online)
		}
	}
	for _, id := range present {
		if !slices.Contains(on, id) {
			off = append(off, id)
		}
	}
	slices.Sort(off)
	return on, off
}

// maxCaches is the largest number of caches that are read for a CPU.
const maxCaches = 16

// cpus reads what the host says about each CPU.
func (r *reader) cpus(f *facts) {
	var on []int
	on, r.t.Offline = r.onlineCPUs()
	told := false
	for _, id := range on {
		dir := fmt.Sprintf("%s/cpu%d", cpuDir, id)
		topo := dir + "/topology"
		c := cpuFacts{CPU: CPU{ID: id, Package: r.number(topo+"/physical_package_id", -1), Die: max(r.number(topo+"/die_id", 0), 0)}}
		c.core = r.siblings(id, topo, "core_cpus", "thread_siblings")
		told = told || c.core != nil
		if c.Package < 0 {
			c.socket = r.siblings(id, topo, "package_cpus", "core_siblings")
		}
		c.cluster = r.siblings(id, topo, "cluster_cpus")
		c.Capacity = r.number(dir+"/cpu_capacity", 0)
		c.MaxMHz = r.number(dir+"/cpufreq/cpuinfo_max_freq", 0) / 1000
		for index := range maxCaches {
			if cache, ok := r.cache(id, fmt.Sprintf("%s/cache/index%d", dir, index)); ok {
				c.caches = append(c.caches, cache)
			}
		}
		f.cpus = append(f.cpus, c)
	}
	if !told && len(on) > 0 {
		r.note("the host does not say which CPUs share a core: each is taken for a core of its own")
	}
}

// siblings returns the CPUs that share something, such as a core, with the CPU id. It reads the first of the named
// files that has a valid list.
func (r *reader) siblings(id int, dir string, names ...string) []int {
	for _, name := range names {
		list := name + "_list"
		ids, ok := r.either(dir+"/"+list, dir+"/"+name)
		if ok && slices.Contains(ids, id) {
			return ids
		}
		if ok {
			r.repair("of lists", "%s: CPU %d is not in its own list %s: it is not used", dir, id, FormatList(ids))
		}
	}
	return nil
}

// cache reads the description of a cache of a CPU. ok is false if the cache holds only instructions, or if the files are invalid.
func (r *reader) cache(id int, dir string) (c cacheFacts, ok bool) {
	kind, _ := r.text(dir + "/type")
	c.level = r.number(dir+"/level", 0)
	if kind == "Instruction" || c.level <= 0 {
		return c, false
	}
	c.cpus, ok = r.either(dir+"/shared_cpu_list", dir+"/shared_cpu_map")
	if ok && !slices.Contains(c.cpus, id) {
		r.repair("of lists", "%s/shared_cpu_list: CPU %d is not in its own list %s: it is not used", dir, id, FormatList(c.cpus))
		ok = false
	}
	if size, told := r.text(dir + "/size"); told && ok {
		c.bytes = r.bytes(dir+"/size", size)
	}
	return c, ok
}

// nodes reads what the host says about each NUMA node.
func (r *reader) nodes(f *facts) {
	ids, ok := r.list(nodeDir + "/online")
	if !ok || len(ids) == 0 {
		ids = r.numbered(nodeDir, "node")
	}
	for _, id := range ids {
		dir := fmt.Sprintf("%s/node%d", nodeDir, id)
		n := Node{ID: id, Weight: r.number(fmt.Sprintf("%s/mempolicy/weighted_interleave/node%d", mmDir, id), 0)}
		n.CPUs, _ = r.either(dir+"/cpulist", dir+"/cpumap")
		if text, ok := r.text(dir + "/distance"); ok {
			for field := range strings.FieldsSeq(text) {
				d, err := strconv.Atoi(field)
				if err != nil || d < 0 {
					r.repair("of distances", "%s/distance: %q is no distance: the distances of node %d are not used", dir, field, id)
					n.Distance = nil
					break
				}
				n.Distance = append(n.Distance, d)
			}
		}
		prefix := fmt.Sprintf("Node %d ", id)
		memory := r.fields(dir+"/meminfo", prefix+"MemTotal", prefix+"MemFree")
		n.Bytes, n.Free = r.bytes(dir+"/meminfo", memory[prefix+"MemTotal"]), r.bytes(dir+"/meminfo", memory[prefix+"MemFree"])
		n.HugePages = r.hugePages(dir + "/hugepages")
		n.Access = r.access(dir + "/access0/initiators")
		f.nodes = append(f.nodes, n)
	}
	if len(f.nodes) == 0 {
		r.note("the kernel knows no NUMA nodes: all is taken for one")
		memory := r.fields("proc/meminfo", "MemTotal", "MemFree")
		n := Node{Distance: []int{10}, Bytes: r.bytes("proc/meminfo", memory["MemTotal"]), Free: r.bytes("proc/meminfo", memory["MemFree"])}
		for _, c := range f.cpus {
			n.CPUs = append(n.CPUs, c.ID)
		}
		n.HugePages = r.hugePages(mmDir + "/hugepages")
		f.nodes = []Node{n}
	}
}

func (r *reader) bytes(name, text string) int64 {
	if text == "" {
		return 0
	}
	v, err := parseSize(text)
	if err != nil {
		r.repair("of sizes", "%s: %v: it is not used", name, err)
	}
	return v
}

func (r *reader) hugePages(dir string) (pools []HugePool) {
	for _, name := range r.src.names(dir) {
		size, ok := strings.CutPrefix(name, "hugepages-")
		if !ok {
			continue
		}
		p := HugePool{Bytes: r.bytes(dir, size)}
		p.Total = r.number(path.Join(dir, name, "nr_hugepages"), 0)
		p.Free = r.number(path.Join(dir, name, "free_hugepages"), 0)
		pools = append(pools, p)
	}
	slices.SortFunc(pools, func(a, b HugePool) int { return cmp.Compare(a.Bytes, b.Bytes) })
	return pools
}

// access reads what the HMAT, a table of the firmware about memory, says about a node. It returns nil if the HMAT says
// nothing.
func (r *reader) access(dir string) *Access {
	a := &Access{
		ReadLatency: r.number(dir+"/read_latency", 0), WriteLatency: r.number(dir+"/write_latency", 0),
		ReadBandwidth: r.number(dir+"/read_bandwidth", 0), WriteBandwidth: r.number(dir+"/write_bandwidth", 0),
	}
	a.Initiators = r.numbered(dir, "node")
	for _, id := range a.Initiators {
		r.kept[fmt.Sprintf("%s/node%d", dir, id)] = "" // the entry is a link in sysfs; only its name counts
	}
	if a.ReadLatency == 0 && a.WriteLatency == 0 && a.ReadBandwidth == 0 && a.WriteBandwidth == 0 && len(a.Initiators) == 0 {
		return nil
	}
	return a
}
