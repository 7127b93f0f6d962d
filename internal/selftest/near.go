//go:build linux

package selftest

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// proveNear makes processes on all NUMA nodes wait for a Mutex with NearWakes, which prefers waiters on the node of the
// holder. It checks that each process gets the Mutex once. It reports how often the Mutex stayed on its node, but does
// not check this number: a waiter that has waited for a millisecond may be served next, on whichever node it is. On a
// slow host, such as an emulator, most waiters have waited that long. The tests of package prims prove the order.
func (t *selftester) proveNear() (string, error) {
	if _, _, ok := asm.CPU(); !ok {
		return "", cannot("this CPU does not tell its node without a system call")
	}
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return "", cannot("/proc is not that of this PID namespace, so that it does not tell which process sleeps")
	}
	text, choices, near, err := t.nearRound()
	if err != nil || choices == 0 {
		return text, err
	}
	return fmt.Sprintf("%s; of %d times that others waited on the same node and elsewhere, %d to one of the same", text, choices, near), nil
}

// nearRound lets each waiter have the lock once. choices is the number of releases with waiters both on the
// holder's node and on other nodes. near is the number of these releases after which a waiter on the holder's node
// got the lock.
func (t *selftester) nearRound() (text string, choices, near int, err error) {
	cpus := t.cpus()
	slices.Reverse(cpus) // the holder is on the last node, and the first waiter on the first
	a, err := newSelftestArena(shm.Policy{})
	if err != nil {
		return "", 0, 0, err
	}
	defer a.Close()
	owner, err := t.startNear(a, cpus[0])
	if err != nil {
		return "", 0, 0, err
	}
	if _, err := owner.says(t, "got"); err != nil {
		return "", 0, 0, err
	}
	node := t.nodeOf(cpus[0])
	waiters, nodes := map[int]*agent{}, []int{}
	for i := range 2 * len(cpus) {
		cpu := cpus[len(cpus)-1-i%len(cpus)]
		w, err := t.startNear(a, cpu)
		if err != nil {
			return "", 0, 0, err
		}
		if err := t.until("falling asleep", func() (bool, error) { return sleepers(a) == i+1 && w.asleep(), nil }); err != nil {
			return "", 0, 0, err
		}
		waiters[i], nodes = w, append(nodes, t.nodeOf(cpu))
	}
	text = fmt.Sprintf("waiters on nodes %v behind one on %d got it in the order", nodes, node)
	for len(waiters) > 0 {
		if _, err := fmt.Fprintln(owner.in, "unlock"); err != nil {
			return "", 0, 0, err
		}
		if _, err := owner.says(t, "free"); err != nil {
			return "", 0, 0, err
		}
		next := -1
		err := t.until(text+", and then nobody", func() (bool, error) {
			for i, w := range waiters {
				if len(w.lines) > 0 {
					next = i
					return true, nil
				}
			}
			return false, nil
		})
		if err != nil {
			return "", 0, 0, err
		}
		if _, err := waiters[next].says(t, "got"); err != nil {
			return "", 0, 0, err
		}
		same, other := 0, 0
		for i := range waiters {
			if nodes[i] == node {
				same++
			} else {
				other++
			}
		}
		if same > 0 && other > 0 {
			choices++
			if nodes[next] == node {
				near++
			}
		}
		text += " " + strconv.Itoa(next)
		owner, node = waiters[next], nodes[next]
		delete(waiters, next)
	}
	return text, choices, near, nil
}

// nodeOf returns the node of a CPU, or -1 if there is none.
func (t *selftester) nodeOf(cpu int) int {
	for _, n := range t.nodes {
		if slices.Contains(n.CPUs, cpu) {
			return n.ID
		}
	}
	return -1
}

func (t *selftester) startNear(a *arena.Arena, cpu int) (*agent, error) {
	w, err := t.startIn(a, nil, "near", strconv.Itoa(cpu))
	if err != nil {
		return nil, err
	}
	_, err = w.says(t, "locks")
	return w, err
}

// sleepers returns the number of waiters that have recorded that they sleep for an object of the arena.
func sleepers(a *arena.Arena) (n int) {
	for o := range a.Objects() {
		for _, w := range (*arenakernel.Arena)(a).WaitsOf(arenakernel.Object(o)) {
			if w.How == arenakernel.WaitAsleep {
				n++
			}
		}
	}
	return n
}

// asleep reports whether all threads of the agent sleep.
func (a *agent) asleep() bool {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", a.cmd.Process.Pid))
	if err != nil || len(tasks) == 0 {
		return false
	}
	for range 3 {
		for _, task := range tasks {
			line := host.ReadLine(task)
			if _, state, ok := strings.Cut(line[strings.LastIndex(line, ")")+1:], " "); !ok || !strings.HasPrefix(state, "S") {
				return false
			}
		}
	}
	return true
}

// beNear is the role of a process that takes the lock, and releases it when the parent asks for that.
func beNear(args []string) error {
	if err := pinAgent(args); err != nil {
		return err
	}
	seg, err := shm.FromFile(os.NewFile(agentFD, "arena"), nil)
	if err != nil {
		return err
	}
	a, err := arena.FromSegment(seg, &arena.Options{Label: "selftest"})
	if err != nil {
		return err
	}
	m, err := prims.OpenMutex(a, "mutex", &prims.MutexOptions{Contention: prims.Contention{NearWakes: true}, Spin: -1})
	if err != nil {
		return err
	}
	say("locks")
	m.Lock()
	say("got")
	if !bufio.NewScanner(os.Stdin).Scan() {
		return nil // the parent has ended
	}
	m.Unlock()
	say("free")
	return nil
}
