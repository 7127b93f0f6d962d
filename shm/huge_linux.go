package shm

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The files in which the kernel describes transparent huge pages, the mounts, and the mappings of this
// process. Tests replace them.
var (
	hugeDir    = "/sys/kernel/mm/transparent_hugepage"
	mountsFile = "/proc/self/mountinfo"
	smapsFile  = "/proc/self/smaps"
)

// noHuge says why a file on the device dev gets no transparent huge pages although the program has
// asked for them with madvise. If possible, it also says what would help. It returns "" if nothing
// prevents huge pages.
func noHuge(dev uint64) string {
	shmem, ok := chosen(filepath.Join(hugeDir, "shmem_enabled"))
	switch {
	case !ok:
		return "this kernel has none for shared memory"
	case shmem == "force":
		return ""
	case shmem == "deny":
		return hugeDir + "/shmem_enabled is deny"
	}
	m, ok := mountOf(dev)
	if !ok { // a memfd, which the kernel keeps on a mount of its own
		if shmem != "never" || anyChosen(filepath.Join(hugeDir, "hugepages-*", "shmem_enabled")) {
			return ""
		}
		return "memfds get none while " + hugeDir + "/shmem_enabled is never: write advise to it"
	}
	if m.kind != "tmpfs" {
		return "files on " + m.kind + " get none that can be shared and written"
	}
	switch m.huge {
	case "", "never":
		return fmt.Sprintf("%s is mounted without them: mount -o remount,huge=advise %s", m.point, m.point)
	}
	return ""
}

// chosen returns the word in brackets from the file of a setting such as "always [never] advise".
func chosen(file string) (string, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", false
	}
	_, rest, _ := strings.Cut(string(b), "[")
	word, _, ok := strings.Cut(rest, "]")
	return word, ok
}

// anyChosen reports whether the setting for at least one page size permits huge pages. It does not read the setting
// that is for all page sizes together.
func anyChosen(pattern string) bool {
	files, _ := filepath.Glob(pattern)
	for _, f := range files {
		switch word, _ := chosen(f); word {
		case "always", "within_size", "advise":
			return true
		}
	}
	return false
}

// mount describes a mount point.
type mount struct {
	point, kind string
	huge        string // value of its mount option "huge"
}

// mountOf returns the last mount of a device that /proc/self/mountinfo lists (proc(5)).
func mountOf(dev uint64) (m mount, ok bool) {
	f, err := os.Open(mountsFile)
	if err != nil {
		return m, false
	}
	defer f.Close()
	want := fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
	for lines := bufio.NewScanner(f); lines.Scan(); {
		head, tail, _ := strings.Cut(lines.Text(), " - ")
		a, b := strings.Fields(head), strings.Fields(tail)
		if len(a) < 5 || len(b) < 1 || a[2] != want {
			continue
		}
		m, ok = mount{point: a[4], kind: b[0]}, true
		for option := range strings.SplitSeq(b[len(b)-1], ",") {
			if v, is := strings.CutPrefix(option, "huge="); is {
				m.huge = v
			}
		}
	}
	return m, ok
}

func (s *Segment) hugeBytes() (int64, error) {
	f, err := os.Open(smapsFile)
	if err != nil {
		return 0, &opError{op: "huge bytes", name: s.name, kind: ErrNotSupported, err: err}
	}
	defer f.Close()
	n, err := hugeIn(f, uint64(address(s.mem)), uint64(address(s.mem))+uint64(len(s.mem)))
	if err != nil {
		return 0, &opError{op: "huge bytes", name: s.name, err: err}
	}
	return n, nil
}

// hugeIn returns how many bytes between two addresses are mapped by huge pages. smaps has the format of
// /proc/PID/smaps.
func hugeIn(smaps io.Reader, from, to uint64) (total int64, err error) {
	ours := false
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		key, rest, _ := strings.Cut(lines.Text(), " ")
		if lo, hi, ok := strings.Cut(key, "-"); ok {
			begin, err1 := strconv.ParseUint(lo, 16, 64)
			end, err2 := strconv.ParseUint(hi, 16, 64)
			ours = err1 == nil && err2 == nil && begin >= from && end <= to
			continue
		}
		switch key {
		case "ShmemPmdMapped:", "FilePmdMapped:", "Shared_Hugetlb:", "Private_Hugetlb:":
			if kb, _, _ := strings.Cut(strings.TrimSpace(rest), " "); ours {
				n, err := strconv.ParseInt(kb, 10, 64)
				if err != nil {
					return 0, err
				}
				total += n << 10
			}
		}
	}
	return total, lines.Err()
}
