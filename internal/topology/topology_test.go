package topology

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

// trees are recorded hosts in testdata.
var trees = []string{"two-socket", "nps4", "cpuless", "memoryless", "asymmetric", "hybrid"}

// tree returns the files of a recorded host.
func tree(t *testing.T, name string) fstest.MapFS {
	t.Helper()
	r := newRecording()
	require.NoError(t, r.readTree(filepath.Join("testdata", name+".tree"), 0))
	files := fstest.MapFS{}
	for name, text := range r.files {
		files[name] = &fstest.MapFile{Mode: 0o666, Data: text}
	}
	return files
}

// written writes the files of a recorded host to a directory, and returns its path.
func written(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, tree(t, name)))
	return dir
}

func load(t *testing.T, name string) *Topology {
	t.Helper()
	top, err := Read(tree(t, name))
	require.NoError(t, err)
	return top
}

func TestTreesAreRead(t *testing.T) {
	for _, name := range trees {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			require.NoError(t, load(t, name).WriteText(&b))
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				require.NoError(t, os.WriteFile(golden, b.Bytes(), 0o666))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), b.String())
		})
	}
}

// TestRecordKeepsWhatIsRead checks that a recording has all the files that this package reads, and no other text.
func TestRecordKeepsWhatIsRead(t *testing.T) {
	for _, name := range []string{"two-socket", "cpuless", "asymmetric"} {
		dir, again := written(t, name), filepath.Join(t.TempDir(), "again")
		require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("not read"), 0o666))
		status := filepath.Join(dir, "proc", "self", "status")
		require.NoError(t, os.WriteFile(status, append(read1(t, status), "Name:\tprivate\n"...), 0o666))
		require.NoError(t, Record(dir, again))
		first, err := Recorded(dir)
		require.NoError(t, err)
		second, err := Recorded(again)
		require.NoError(t, err)
		require.Equal(t, first, second, name)
		require.NoFileExists(t, filepath.Join(again, "secret"))
		require.NotContains(t, string(read1(t, filepath.Join(again, "proc", "self", "status"))), "private")
	}
}

func read1(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return b
}

func TestClasses(t *testing.T) {
	for _, c := range []struct {
		tree string
		a, b int
		want Class
	}{
		{"two-socket", 1, 1, Same}, {"two-socket", 0, 4, SMT}, {"two-socket", 0, 1, SameLLC}, {"two-socket", 0, 2, "remote-21"},
		{"two-socket", 7, 3, SMT}, {"two-socket", 0, 99, "remote-?"},
		{"nps4", 0, 1, SameLLC}, {"nps4", 0, 2, SameNode}, {"nps4", 0, 4, "package-12"}, {"nps4", 15, 3, "package-12"},
		{"hybrid", 0, 4, "llc:EP"}, {"hybrid", 0, 8, "node:EP"}, {"hybrid", 2, 3, "smt:PP"},
		{"memoryless", 0, 5, "remote-30"},
	} {
		top := load(t, c.tree)
		require.Equal(t, c.want, top.Class(c.a, c.b), "%s %d %d", c.tree, c.a, c.b)
		require.Equal(t, c.want, top.Class(c.b, c.a), "%s %d %d", c.tree, c.b, c.a)
	}
}

func TestNearest(t *testing.T) {
	top := load(t, "memoryless")
	for node, want := range map[int]int{0: 0, 1: 1, 2: 1, 3: 3, 9: -1} {
		require.Equal(t, want, top.Nearest(node), node)
	}
}

func TestLimitsAreRead(t *testing.T) {
	top := load(t, "asymmetric")
	require.Equal(t, []int{0, 1, 4}, top.Limits.CPUs)
	require.Equal(t, []int{0}, top.Limits.Nodes)
	require.InDelta(t, 1.5, top.Limits.Quota, 1e-9, "of a cgroup above")
	require.Equal(t, int64(4<<30), top.Limits.Memory)
	require.Equal(t, []int{3}, top.Offline)
	require.Empty(t, top.Settings.NoHz)
}

// TestRepairs checks that Read ignores an invalid file of the host and adds a note about it.
func TestRepairs(t *testing.T) {
	const cpu, node = "sys/devices/system/cpu/", "sys/devices/system/node/"
	for _, c := range []struct{ name, text, want string }{
		{cpu + "online", "", "online is missing"},
		{cpu + "online", "0-", "no list of numbers"},
		{cpu + "online", "0-4294967295", "no list of numbers"},
		{cpu + "cpu1/topology/physical_package_id", "one", "no number"},
		{cpu + "cpu1/topology/core_cpus_list", "7", "CPU 1 is not in its own list 7"},
		{cpu + "cpu1/cache/index3/shared_cpu_list", "7", "CPU 1 is not in its own list 7"},
		{cpu + "cpu1/cache/index3/size", "big", "no size"},
		{node + "node0/distance", "10", "node 0 has 1 distances, and 2 nodes"},
		{node + "node0/distance", "10 x", "no distance"},
		{node + "node0/cpulist", "0-9", "lists CPU 8, which is not online: it is left out (and 1 more such CPUs)"},
		{node + "node0/cpulist", "0-7", "in several nodes: each is taken for one of the smallest"},
		{node + "node0/cpulist", "0", "is in no node: it is taken for one of node 0"},
		{node + "node1/cpulist", "0-1,4-5", "nodes 0 and 1 list the same CPUs"},
		{node + "node0/meminfo", "Node 0 MemTotal: lots kB\n", "no size"},
		{"proc/self/status", "Cpus_allowed_list:\tall\n", "no list of numbers"},
		{"sys/fs/cgroup/cpu.max", "fast 100000", "no share of time"},
		{"sys/fs/cgroup/pids.max", "few", "no number of processes"},
	} {
		files := tree(t, "two-socket")
		files["proc/self/cgroup"] = &fstest.MapFile{Data: []byte("0::/\n")}
		files[c.name] = &fstest.MapFile{Data: []byte(c.text)}
		top, err := Read(files)
		require.NoError(t, err, c.name)
		require.Len(t, top.CPUs, 8)
		require.Contains(t, strings.Join(top.Notes, "\n"), c.want, c.name)
		require.NoError(t, top.WriteText(new(bytes.Buffer)))
	}
	_, err := Recorded(t.TempDir())
	require.ErrorContains(t, err, "is no recorded tree: it names no CPU")
	_, err = Recorded(filepath.Join(t.TempDir(), "nothing"))
	require.ErrorContains(t, err, "is no recorded tree")
	_, err = Recorded(filepath.Join("testdata", "two-socket.golden"))
	require.ErrorContains(t, err, "no archive of tar")
}

// The lowest limit of a cgroup and its ancestors applies, in both versions of cgroups.
func TestLimitsOfCgroups(t *testing.T) {
	read := func(groups string, limits map[string]string) Limits {
		files := tree(t, "two-socket")
		files["proc/self/cgroup"] = &fstest.MapFile{Data: []byte(groups)}
		for name, text := range limits {
			files["sys/fs/cgroup/"+name] = &fstest.MapFile{Data: []byte(text + "\n")}
		}
		top, err := Read(files)
		require.NoError(t, err)
		require.Empty(t, top.Notes)
		return top.Limits
	}
	l := read("0::/a/b\n", map[string]string{"a/b/pids.max": "max", "a/pids.max": "500", "pids.max": "900", "a/b/cpu.max": "150000 100000", "a/memory.max": "1073741824"})
	require.Equal(t, []string{"time of 1.50 CPUs", "memory of 1 GB", "500 processes and threads"}, l.Cgroup())
	l = read("4:pids:/c\n5:memory:/c\n", map[string]string{"pids/c/pids.max": "77", "pids/pids.max": "max", "memory/c/memory.limit_in_bytes": "9223372036854771712"})
	require.Equal(t, []string{"77 processes and threads"}, l.Cgroup())
	l = read("0::/\n", nil)
	require.Empty(t, l.Cgroup())
}

// TestLittleIsSaid checks that a host gets a topology even if its kernel reports no nodes, caches or cores.
func TestLittleIsSaid(t *testing.T) {
	dir := written(t, "two-socket")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "sys", "devices", "system", "node")))
	for _, name := range []string{"topology", "cache"} {
		dirs, err := fs.Glob(os.DirFS(dir), "sys/devices/system/cpu/cpu*/"+name)
		require.NoError(t, err)
		require.NotEmpty(t, dirs)
		for _, d := range dirs {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, d)))
		}
	}
	top, err := Recorded(dir)
	require.NoError(t, err)
	require.Len(t, top.Notes, 3)
	require.Len(t, top.Nodes, 1)
	require.Len(t, top.LLCs, 1)
	require.Equal(t, SameLLC, top.Class(0, 7))
	require.NoError(t, top.WriteText(new(bytes.Buffer)))
}

func TestLists(t *testing.T) {
	for text, want := range map[string][]int{"": nil, "0": {0}, "0-3,8": {0, 1, 2, 3, 8}, " 5,7-8\n": {5, 7, 8}} {
		got, err := ParseList(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, strings.TrimSpace(text), FormatList(got))
	}
	for _, text := range []string{"x", "1-", "-1", "3-1", "1,,2", "99999999"} {
		_, err := ParseList(text)
		require.Error(t, err, text)
	}
}

func TestSizes(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0 B", 512: "512 B", 32 << 10: "32 kB", 1<<20 + 1<<19: "1.5 MB", 16 << 30: "16 GB", 3 << 40: "3 TB"} {
		require.Equal(t, want, formatSize(bytes))
	}
}

// FuzzTree checks that a tree with arbitrary bytes is read or gives an error, but never causes a panic.
func FuzzTree(f *testing.F) {
	f.Add("0-1", "0", "10 20", "32K")
	f.Add("0", "0", "10", "32K")
	f.Fuzz(func(t *testing.T, online, cpus, distance, size string) {
		if list, err := ParseList(online); err != nil || len(list) > 100 {
			return
		}
		files := fstest.MapFS{}
		for name, text := range map[string]string{
			"cpu/online": online, "node/online": cpus, "node/node0/cpulist": cpus, "node/node0/distance": distance,
			"cpu/cpu0/cache/index0/size": size, "cpu/cpu0/cache/index0/type": "Data", "cpu/cpu0/cache/index0/level": "1",
			"cpu/cpu0/cache/index0/shared_cpu_list": cpus,
		} {
			files["sys/devices/system/"+name] = &fstest.MapFile{Data: []byte(text)}
		}
		if top, err := Read(files); err == nil {
			require.NoError(t, top.WriteText(new(bytes.Buffer)))
		}
	})
}

// TestUnusualHosts checks hosts whose firmware describes them in unusual ways. The package reads them, and puts each
// pair of CPUs into the right class, such as smt for the CPUs of one core.
func TestUnusualHosts(t *testing.T) {
	for name, want := range map[string]string{
		"two-by-96":       "2 8 8 8 24 192 384 0 384: smt llc node package-12 remote-32",
		"sub-numa":        "2 4 4 4 2 16 32 0 32: smt llc llc-node-12 remote-21",
		"eight":           "8 8 8 8 8 32 32 0 32: llc remote-21 remote-31",
		"no-shared-cache": "2 4 4 4 - 16 16 0 16: llc package-11 remote-20",
		"modules":         "2 3 2 3 2 16 16 0 16: module llc remote-21",
		"old-kernel":      "2 2 2 2 2 4 7 1 7: smt llc remote-20",
		"contradictions":  "1 3 3 3 - 8 8 0 8: llc package-21 package-23 package-24",
	} {
		top, err := Recorded(filepath.Join("testdata", name+".tree"))
		require.NoError(t, err)
		got := top.summary()
		require.Equal(t, want, strings.Join(got[:len(got)-1], " ")+": "+got[len(got)-1], "%s %q", name, top.Notes)
		for _, class := range top.ClassesOf(top.IDs()) {
			require.True(t, class.Valid(), class)
			cpus := top.Representative(top.IDs(), class)
			require.Equal(t, class, top.Class(cpus[0], cpus[1]), "%s %v", name, cpus)
		}
	}
}

// TestLeavesHaveAllClasses checks that ClassesOf, which compares leaves, finds the same classes as a comparison of
// all pairs of CPUs. A leaf is a set of CPUs that are equally near each other.
func TestLeavesHaveAllClasses(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.tree"))
	require.NoError(t, err)
	for _, file := range files {
		top, err := Recorded(file)
		require.NoError(t, err)
		seen := map[Class]bool{}
		for i, a := range top.CPUs {
			for _, b := range top.CPUs[i+1:] {
				seen[top.class(a, b)] = true
			}
		}
		list := slices.SortedFunc(maps.Keys(seen), CompareClasses)
		require.Equal(t, list, top.ClassesOf(top.IDs()), file)
	}
}

// TestArchives checks that a compressed archive is a valid recording, even if its files end with zero bytes and it
// has symbolic links.
func TestArchives(t *testing.T) {
	r := newRecording()
	require.NoError(t, r.readTree(filepath.Join("testdata", "old-kernel.tree"), 0))
	want, err := Recorded(filepath.Join("testdata", "old-kernel.tree"))
	require.NoError(t, err)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	archive := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		if rest, ok := strings.CutPrefix(name, nodeDir+"/node1/"); ok {
			name = "sys/devices/nodes/one/" + rest
		}
		text := append(bytes.TrimSpace(slices.Clone(fileOf(r, name))), 0, 0)
		require.NoError(t, archive.WriteHeader(&tar.Header{Name: "some-host/" + name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}))
		_, err := archive.Write(text)
		require.NoError(t, err)
	}
	require.NoError(t, archive.WriteHeader(&tar.Header{Name: "some-host/" + nodeDir + "/node1", Linkname: "../../nodes/one", Typeflag: tar.TypeSymlink}))
	require.NoError(t, archive.Close())
	require.NoError(t, z.Close())
	name := filepath.Join(t.TempDir(), "host.tar.gz")
	require.NoError(t, os.WriteFile(name, b.Bytes(), 0o666))
	got, err := Recorded(name)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// fileOf returns a file of the recording. name is the name of the file in the archive. In the archive, the files of
// node 1 are in another directory than in the recording.
func fileOf(r *recording, name string) []byte {
	if rest, ok := strings.CutPrefix(name, "sys/devices/nodes/one/"); ok {
		name = nodeDir + "/node1/" + rest
	}
	return r.files[name]
}

func TestTreesThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"no colon\n": "want PATH: TEXT", "a{0-1: x\n": "no closing brace", "a{x}: 1\n": "no list of numbers",
		"a{0}: {x}\n": "is no number to add", "a: {}\n": "needs a list", "@include bad.tree\n": "trees include each other",
	} {
		name := filepath.Join(t.TempDir(), "bad.tree")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o666))
		_, err := Recorded(name)
		require.ErrorContains(t, err, want, text)
	}
}

func TestMasks(t *testing.T) {
	for text, want := range map[string][]int{"00000000": nil, "5": {0, 2}, "00000001,80000000": {31, 32}, "f0": {4, 5, 6, 7}} {
		got, err := ParseMask(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "x", "1,,2", "123456789"} {
		_, err := ParseMask(text)
		require.Error(t, err, text)
	}
}

// CPUs are of two kinds if they differ by more than 15 % in capacity or, if not, in frequency.
func TestKindsOfCPU(t *testing.T) {
	for _, c := range []struct {
		capacities, mhz [3]int
		kinds           [3]string
	}{
		{[3]int{1024, 1024, 800}, [3]int{3000, 2000, 3000}, [3]string{Fast, Fast, Slow}},
		{[3]int{1024, 1000, 900}, [3]int{3000, 2000, 3000}, [3]string{Fast, Slow, Fast}},
		{[3]int{1024, 1024, 1024}, [3]int{3000, 3000, 2000}, [3]string{Fast, Fast, Slow}},
		{[3]int{}, [3]int{3000, 3000, 2000}, [3]string{Fast, Fast, Slow}},
		{[3]int{1024, 0, 800}, [3]int{}, [3]string{Fast, Fast, Slow}},
		{[3]int{1024, 1000, 871}, [3]int{3000, 2900, 2551}, [3]string{}},
		{[3]int{}, [3]int{}, [3]string{}},
	} {
		r := &reader{t: &Topology{CPUs: make([]CPU, 3)}}
		for i := range r.t.CPUs {
			r.t.CPUs[i].Capacity, r.t.CPUs[i].MaxMHz = c.capacities[i], c.mhz[i]
		}
		r.kindsOfCPU()
		for i, cpu := range r.t.CPUs {
			require.Equal(t, c.kinds[i], cpu.Kind, "%v %v: CPU %d", c.capacities, c.mhz, i)
		}
	}
}
