//go:build linux

package selftest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/child"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// crashNodes is the largest number of NUMA nodes for which all pairs are tested. If there are more nodes, each is
// paired only with its neighbours in the list.
const crashNodes = 4

// crashProofs returns proofs that kill the holder of a lock while another process waits for the lock. They include a
// proof for each pair of NUMA nodes (see crashNodes), and proofs without the kernel features that report deaths.
func (t *selftester) crashProofs() (list []proof) {
	add := func(name, victim, successor string, env ...string) {
		list = append(list, proof{"crash/" + name, func(t *selftester) (string, error) { return t.proveSuccessor(victim, successor, env) }})
	}
	var nodes []numaNode
	for _, n := range t.nodes {
		if len(n.CPUs) > 0 {
			nodes = append(nodes, n)
		}
	}
	for i, v := range nodes {
		for j, h := range nodes {
			next := (i+1)%len(nodes) == j || (j+1)%len(nodes) == i
			if i != j && (next || len(nodes) <= crashNodes) {
				add(fmt.Sprintf("node%d-node%d", v.ID, h.ID), strconv.Itoa(v.CPUs[0]), strconv.Itoa(h.CPUs[0]))
			}
		}
	}
	if len(nodes) > 0 {
		cpus := nodes[0].CPUs
		add("one-cpu", strconv.Itoa(cpus[0]), strconv.Itoa(cpus[0]))
		if len(cpus) > 1 {
			add("two-cpus", strconv.Itoa(cpus[0]), strconv.Itoa(cpus[1]))
		}
	}
	add("anywhere", "", "")
	for _, missing := range []string{"robust", "waitv", "membarrier", "ofd", "threads", "robust,waitv,membarrier"} {
		add("without:"+missing, "", "", child.Without(missing)...)
	}
	return list
}

// proveSuccessor kills a process that holds a lock. Another process waits for the lock, and must get it. The parameters
// victim and successor are the CPUs of these two processes.
func (t *selftester) proveSuccessor(victim, successor string, env []string) (string, error) {
	a, err := newSelftestArena(shm.Policy{})
	if err != nil {
		return "", err
	}
	defer a.Close()
	v, err := t.startIn(a, env, "victim", victim)
	if err != nil {
		return "", err
	}
	if _, err := v.says(t, "held"); err != nil {
		return "", err
	}
	h, err := t.startIn(a, env, "successor", successor)
	if err != nil {
		return "", err
	}
	if _, err := h.says(t, "waiting"); err != nil {
		return "", err
	}
	if err := v.kill(); err != nil {
		return "", err
	}
	if _, err := h.says(t, "owned"); err != nil {
		return "", err
	}
	return "the death was told, the lock recovered and taken", nil
}

// startIn starts an agent, that is, a process of the test. The agent inherits the arena through a descriptor of its
// own.
func (t *selftester) startIn(a *arena.Arena, env []string, role string, args ...string) (*agent, error) {
	f, err := a.Segment().Reopen()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return t.start(f, env, role, args...)
}

func (t *selftester) proveFeatures() (string, error) {
	var told []string
	for _, f := range shmsync.Features() {
		err := f.Check()
		switch {
		case err == nil:
			told = append(told, f.Name())
		case errors.Is(err, shmsync.ErrNotSupported):
			told = append(told, "no "+f.Name())
		default:
			return "", fmt.Errorf("the probe of %s could not tell: %w", f.Name(), err)
		}
	}
	return strings.Join(told, ", "), nil
}

// provePin checks that a process can be pinned to each allowed CPU, and that pinning it to a CPU that does not exist is
// refused.
func (t *selftester) provePin() (string, error) {
	cpus, err := place.AllowedCPUs()
	if err != nil {
		return "", err
	}
	for _, cpu := range cpus {
		a, err := t.start(nil, nil, "pinned", strconv.Itoa(cpu))
		if err != nil {
			return "", err
		}
		if _, err := a.says(t, "runs"); err != nil {
			return "", err
		}
	}
	absent := cpus[len(cpus)-1] + 1
	for ; absent < 1024; absent++ {
		if _, err := os.Stat("/sys/devices/system/cpu/cpu" + strconv.Itoa(absent)); errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err := place.PinThread(0, absent); err == nil {
		return "", fmt.Errorf("this thread may run on CPU %d, which there is not", absent)
	}
	return fmt.Sprintf("%d CPUs, and CPU %d is refused", len(cpus), absent), nil
}

// bePinned is the role of a process that checks on which CPU it runs.
func bePinned(args []string) error {
	if err := pinAgent(args); err != nil {
		return err
	}
	if cpu, _, ok := asm.CPU(); ok && strconv.Itoa(int(cpu)) != args[0] {
		return fmt.Errorf("pinned to CPU %s, runs on %d", args[0], cpu)
	}
	say("runs")
	return nil
}

// proveNamed shares an arena with another process by the name of the arena. If the host has no directory for segments,
// the error of Create must say so.
func (t *selftester) proveNamed() (string, error) {
	name := fmt.Sprintf("shmbench-selftest-%d", os.Getpid())
	a, err := arena.Create(name, &arena.Options{Size: bench.ArenaLeast})
	if _, serr := os.Stat(shm.Dir); errors.Is(serr, fs.ErrNotExist) {
		if err == nil || !strings.Contains(err.Error(), shm.Dir) {
			return "", fmt.Errorf("there is no %s, and the error is: %v", shm.Dir, err)
		}
		return "", cannot("%v", err)
	}
	if err != nil {
		return "", err
	}
	defer shm.Remove(name)
	defer a.Close()
	o, err := t.start(nil, nil, "opener", name)
	if err != nil {
		return "", err
	}
	if _, err := o.says(t, "locked"); err != nil {
		return "", err
	}
	m, err := prims.OpenMutex(a, "mutex", nil)
	if err != nil {
		return "", err
	}
	if m.TryLock() {
		return "", errors.New("two processes have the lock")
	}
	if err := o.kill(); err != nil {
		return "", err
	}
	return name + " was found by another process, and its lock is one", nil
}

// beOpener is the role of a process that takes a lock in a named arena, and keeps it.
func beOpener(args []string) error {
	a, err := arena.Attach(args[0], nil)
	if err != nil {
		return err
	}
	m, err := prims.OpenMutex(a, "mutex", nil)
	if err != nil {
		return err
	}
	m.Lock()
	say("locked")
	for {
		unix.Pause()
	}
}

func (t *selftester) proveExclusion() (string, error) {
	a, err := newSelftestArena(shm.Policy{})
	if err != nil {
		return "", err
	}
	defer a.Close()
	n, err := t.addUp(a, nil)
	return fmt.Sprintf("%d additions by processes on CPUs %s, none lost", n, place.JoinInts(t.cpus())), err
}

// addUp starts processes that increment a counter: one on a CPU of each node, and one that is not pinned. It checks
// that no increment was lost, and returns the sum.
func (t *selftester) addUp(a *arena.Arena, env []string) (uint64, error) {
	sum, err := arena.Value[uint64](a, "sum")
	if err != nil {
		return 0, err
	}
	var adders []*agent
	for _, cpu := range append([]string{""}, strings.Split(place.JoinInts(t.cpus()), ",")...) {
		w, err := t.startIn(a, env, "adder", cpu)
		if err != nil {
			return 0, err
		}
		adders = append(adders, w)
	}
	for _, line := range []string{"ready", "added"} {
		for _, w := range adders {
			if _, err := w.says(t, line); err != nil {
				return 0, err
			}
		}
	}
	if want := uint64(len(adders) * adderTurns); *sum != want {
		return 0, fmt.Errorf("%d additions under the lock, the sum is %d", want, *sum)
	}
	return *sum, nil
}
