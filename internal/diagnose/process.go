package diagnose

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// process is what the kernel says about a process of this host.
type process struct {
	pid   int // in this pid namespace
	state byte
}

// processes finds the processes of participants.
type processes struct {
	proc    string // where /proc is mounted
	ownNS   uint64
	byNS    map[[2]uint64]int // maps a pid namespace and a pid in it to the pid in ownNS
	scanned bool
	foreign bool // /proc belongs to another pid namespace, so its pids have no meaning here
}

func newProcesses() *processes { return processesOf("/proc") }

// processesOf finds processes in the /proc that is mounted at a path.
func processesOf(proc string) *processes {
	p := &processes{proc: proc}
	p.ownNS = p.namespace("self")
	p.foreign = !p.isOwn()
	return p
}

// isOwn reports whether /proc belongs to the pid namespace of this process. After a command
// such as "unshare --pid --fork" without --mount-proc it does not. Then the pids in /proc are of no use for kill.
func (p *processes) isOwn() bool {
	self, err := os.Readlink(p.proc + "/self")
	if err != nil || self != strconv.Itoa(os.Getpid()) {
		return false
	}
	// The pid in /proc/self may be equal by chance: this process may have the same pid in two namespaces. NSpid lists
	// the pids of this process in the namespace of /proc and in each further namespace, down to its own one.
	return len(p.pids(p.proc+"/self")) <= 1
}

// find returns the process that has the ID pid in the pid namespace ns. If start is not 0, the process must also have
// that start time, because process IDs are reused.
func (p *processes) find(ns uint64, pid int, start uint64) (process, bool) {
	if p.foreign {
		return process{}, false
	}
	here := pid
	if ns != p.ownNS {
		p.scan()
		here = p.byNS[[2]uint64{ns, uint64(pid)}]
	}
	if here == 0 {
		return process{}, false
	}
	state, began, ok := p.stat(strconv.Itoa(here))
	if state == 'Z' {
		state = p.zombie(here)
	}
	if !ok || start != 0 && began != start {
		return process{}, false
	}
	return process{here, state}, true
}

// findMember returns the process of a participant whose slot has the pid, but not yet the pid namespace and the start
// time. A participant stores these a moment after its join, and may be stopped before that. The process must have the
// file of the arena open, and must belong to no known participant. There must be exactly one such process with that
// pid, because shmctl prints commands that end it.
func (p *processes) findMember(pid int, file *os.File, known []Participant) (found process, ok bool) {
	arena, err := file.Stat()
	if err != nil || pid == 0 || p.foreign {
		return process{}, false
	}
	others := map[int]bool{os.Getpid(): true}
	for i := range known {
		others[known[i].HostPID] = true
	}
	dirs, _ := filepath.Glob(p.proc + "/[0-9]*")
	for _, dir := range dirs {
		here, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || others[here] || p.innerPID(dir) != pid || !hasOpen(dir, arena) {
			continue
		}
		state, _, alive := p.stat(strconv.Itoa(here))
		if !alive {
			continue
		}
		if state == 'Z' {
			state = p.zombie(here)
		}
		if ok {
			return process{}, false
		}
		found, ok = process{here, state}, true
	}
	return found, ok
}

// hasOpen reports whether the process of a directory of /proc has that file open.
func hasOpen(dir string, file os.FileInfo) bool {
	fds, _ := filepath.Glob(dir + "/fd/[0-9]*")
	for _, fd := range fds {
		if info, err := os.Stat(fd); err == nil && os.SameFile(info, file) {
			return true
		}
	}
	return false
}

// scan finds out which pids the processes of this host have in other namespaces.
func (p *processes) scan() {
	if p.scanned {
		return
	}
	p.scanned = true
	p.byNS = map[[2]uint64]int{}
	dirs, _ := filepath.Glob(p.proc + "/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		ns := p.namespace(filepath.Base(dir))
		if ns == 0 || ns == p.ownNS {
			continue
		}
		if inner := p.innerPID(dir); inner != 0 {
			p.byNS[[2]uint64{ns, uint64(inner)}] = pid
		}
	}
}

func (p *processes) namespace(pid string) uint64 {
	link, err := os.Readlink(p.proc + "/" + pid + "/ns/pid")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(link, "[")
	n, _ := strconv.ParseUint(strings.TrimSuffix(rest, "]"), 10, 64)
	return n
}

// innerPID returns the pid that a process has in its own namespace.
func (p *processes) innerPID(dir string) int {
	pids := p.pids(dir)
	if len(pids) == 0 {
		return 0
	}
	pid, _ := strconv.Atoi(pids[len(pids)-1])
	return pid
}

// pids returns the pids of a process in several namespaces. The first is in the namespace of /proc, and the last is in
// the process's own namespace.
func (p *processes) pids(dir string) []string {
	b, err := os.ReadFile(dir + "/status")
	if err != nil {
		return nil
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return strings.Fields(rest)
		}
	}
	return nil
}

// zombie returns the state of a process whose main thread has ended. In a C program, other threads may still run. Then
// the state of one of these threads counts.
func (p *processes) zombie(pid int) byte {
	tasks, _ := filepath.Glob(p.proc + "/" + strconv.Itoa(pid) + "/task/[0-9]*")
	for _, task := range tasks {
		state, _, ok := p.stat(strings.TrimPrefix(task, p.proc+"/"))
		if ok && state != 'Z' && state != 'X' {
			return state
		}
	}
	return 'Z'
}

// stat reads the state and the start time of a process or thread. The parameter dir is its directory below /proc.
func (p *processes) stat(dir string) (state byte, start uint64, ok bool) {
	b, err := os.ReadFile(p.proc + "/" + dir + "/stat")
	if err != nil {
		return 0, 0, false
	}
	// The process name in parentheses may contain anything.
	i := strings.LastIndexByte(string(b), ')')
	if i < 0 {
		return 0, 0, false
	}
	const startField = 22 - 3 // the text after the parenthesis begins with field 3
	fields := strings.Fields(string(b[i+1:]))
	if len(fields) <= startField || fields[0] == "" {
		return 0, 0, false
	}
	start, err = strconv.ParseUint(fields[startField], 10, 64)
	return fields[0][0], start, err == nil
}

// exists reports whether the process has not ended.
func (p process) exists() bool { return !strings.ContainsRune("ZXx", rune(p.state)) }

// stateText returns the state of a process as text, if the state matters here.
func (p process) stateText() string {
	switch p.state {
	case 'R':
		return "running"
	case 'S':
		return "sleeping"
	case 'D':
		return "in the kernel"
	case 'T':
		return "stopped"
	case 't':
		return "stopped by a debugger"
	case 'Z':
		return "zombie"
	case 'X', 'x':
		return "dead"
	case 'I':
		return "idle"
	}
	return string(p.state)
}
