package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shmsync/shmsync"
	"golang.org/x/sys/unix"
)

// facts prints facts about this machine, so that a log shows whether the machine has what its tests need. The
// parameters sys and proc are the directories from which it reads.
func facts(out io.Writer, sys, proc string) {
	fact := func(name, format string, args ...any) {
		fmt.Fprintf(out, "MACHINE %s %s\n", name, fmt.Sprintf(format, args...))
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		fact("kernel", "unknown: %v", err)
	} else {
		fact("kernel", "%s", unix.ByteSliceToString(u.Release[:]))
	}
	fact("cpus", "%s", word(sys, "devices/system/cpu/online"))
	fact("nodes", "%s", word(sys, "devices/system/node/online"))
	fact("nodes-with-memory", "%s", word(sys, "devices/system/node/has_memory"))
	fact("nodes-with-cpus", "%s", word(sys, "devices/system/node/has_cpu"))
	// Sort by length first, so that node10 comes after node9.
	nodes, _ := filepath.Glob(filepath.Join(sys, "devices/system/node/node[0-9]*"))
	slices.SortFunc(nodes, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	})
	for _, node := range nodes {
		fact(filepath.Base(node), "cpus %s, distances %s", cmp.Or(word(node, "cpulist"), "none"), word(node, "distance"))
	}
	fact("boot", "%s", word(proc, "cmdline"))
	for _, f := range shmsync.Features() {
		if err := f.Check(); err != nil {
			fact("feature", "%v", err)
		} else {
			fact("feature", "%s", f.Name())
		}
	}
}

// word returns the contents of a file below dir, on one line.
func word(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}
