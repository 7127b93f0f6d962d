//go:build linux

package stopstorm

import (
	"debug/dwarf"
	"debug/elf"
	_ "embed" // for workerSource
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/include"
	"github.com/shmsync/shmsync/internal/bench/peers"
)

// workerSource is the program of the workers in C.
//
//go:embed worker.c
var workerSource string

// Values of Options.In, which say in which language the workers of a storm are written. In a mixed storm, worker 1 and
// every second worker after it are programs in C.
const (
	inGo    = "go"
	inC     = "c"
	inMixed = "mixed"
)

// onlyGo has the names of the workloads that a program in C cannot run, with the reason for each.
var onlyGo = map[string]string{
	"cohortmutex": "the header has no CohortMutex",
	"waitable":    "the header has no Waitable",
	"objects":     "the header cannot claim memory without a name",
}

// inC reports whether the worker with this number is a program in C.
func (s *storm) inC(number int) bool {
	return s.in == inC || s.in == inMixed && number%2 == 1
}

// cProgram is the compiled program of the workers in C, with its symbols.
type cProgram struct {
	file      *os.File
	functions []elf.Symbol // in the order of their addresses
	lines     *dwarf.Data
}

// buildInC compiles the workers in C.
func buildInC(cc string) (*cProgram, error) {
	file, err := peers.BuildWorker(cc, "stopstorm", workerSource, include.Header, append([]string{"-std=gnu11", "-O2", "-g", "-pthread"}, pageFlags()...)...)
	if err != nil {
		return nil, err
	}
	p := &cProgram{file: file}
	if err := p.readSymbols(); err != nil {
		file.Close()
		return nil, fmt.Errorf("the workers in C: %w", err)
	}
	return p, nil
}

// close closes the file of the program. The receiver may be nil.
func (c *cProgram) close() {
	if c != nil {
		c.file.Close()
	}
}

// argv returns the command line of the C worker with this number.
func (c *cProgram) argv(number int, prim string, lanes []lane) []string {
	argv := []string{fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), c.file.Fd()), strconv.Itoa(number), prim}
	for _, l := range lanes {
		argv = append(argv, l.name)
	}
	return argv
}

func (c *cProgram) readSymbols() error {
	f, err := elf.NewFile(c.file)
	if err != nil {
		return err
	}
	all, err := f.Symbols()
	if err != nil {
		return err
	}
	for _, s := range all {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Value != 0 {
			c.functions = append(c.functions, s)
		}
	}
	slices.SortFunc(c.functions, func(a, b elf.Symbol) int { return int(int64(a.Value) - int64(b.Value)) })
	c.lines, err = f.DWARF()
	return err
}

// frames returns the functions of the C library at an address of the program, with the line of the source.
func (c *cProgram) frames(pc uintptr) []string {
	i, _ := slices.BinarySearchFunc(c.functions, uint64(pc)+1, func(s elf.Symbol, pc uint64) int { return int(int64(s.Value) - int64(pc)) })
	if i == 0 {
		return nil
	}
	f := c.functions[i-1]
	if uint64(pc) >= f.Value+f.Size || !strings.HasPrefix(f.Name, "shmsync_") && !strings.HasPrefix(f.Name, "shmi_") {
		return nil
	}
	r := c.lines.Reader()
	if unit, err := r.SeekPC(uint64(pc)); err == nil {
		if lines, err := c.lines.LineReader(unit); err == nil && lines != nil {
			var at dwarf.LineEntry
			if lines.SeekPC(uint64(pc), &at) == nil && at.File != nil {
				return []string{fmt.Sprintf("%s %s:%d", f.Name, filepath.Base(at.File.Name), at.Line)}
			}
		}
	}
	return []string{fmt.Sprintf("%s+%#x", f.Name, uint64(pc)-f.Value)}
}
