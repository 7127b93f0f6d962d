//go:build linux

package selftest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/place"
)

// The indices of the words of a test of wakes. Each word is on a cache line of its own.
const (
	wakeFirst  = iota // agents begin to sleep on this word; it stays 0
	wakeSecond        // the parent moves sleepers to this word, to prove that they sleep
	wakeOrder         // number of sleepers that were woken
)

// sleepersOf maps a page of shared memory on which processes can sleep, for a test of wakes.
func sleepersOf() (*os.File, []byte, error) {
	f, err := control.NewMemfd("selftest-wakes", int64(os.Getpagesize()))
	if err != nil {
		return nil, nil, err
	}
	mem, err := mapWords(f)
	if err != nil {
		f.Close()
	}
	return f, mem, err
}

func mapWords(f *os.File) ([]byte, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return mem, os.NewSyscallError("mmap", err)
}

func wakeWord(mem []byte, line int) *atomic.Uint32 { return control.WordAt(mem, line*64) }

// until calls the function try repeatedly until it returns true, for example because a process has fallen asleep.
// until returns an error after waitLimit.
func (t *selftester) until(what string, try func() (bool, error)) error {
	for end := time.Now().Add(t.waitLimit); ; time.Sleep(time.Millisecond) {
		switch ok, err := try(); {
		case err != nil:
			return err
		case ok:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%s: not within %v", what, t.waitLimit)
		case t.ctx.Err() != nil:
			return t.ctx.Err()
		}
	}
}

// proveBitset puts four processes of two groups to sleep on one word, and wakes one group before the other. The library
// wakes by groups to prefer waiters of one NUMA node. A group is a bit that its processes pass to WaitBitset.
//
// To find out that a process sleeps, proveBitset moves it to another word, which is possible only if the process
// sleeps. A process keeps its bit when it is moved.
func (t *selftester) proveBitset() (string, error) {
	f, mem, err := sleepersOf()
	if err != nil {
		return "", err
	}
	defer f.Close()
	defer unix.Munmap(mem)
	first, second := control.FutexWord(wakeWord(mem, wakeFirst)), control.FutexWord(wakeWord(mem, wakeSecond))
	cpus := t.cpus()
	groups := [...]uint32{1, 2}
	var sleepers []*agent
	for i := range 4 {
		a, err := t.start(f, nil, "sleeper", strconv.Itoa(cpus[i%len(cpus)]), strconv.Itoa(int(groups[i%2])))
		if err != nil {
			return "", err
		}
		if _, err := a.says(t, "sleeps"); err != nil {
			return "", err
		}
		err = t.until("moving a sleeper", func() (bool, error) {
			n, _, err := shmsync.Requeue(first, 0, 0, second, 1)
			return n == 1, err
		})
		if err != nil {
			return "", err
		}
		sleepers = append(sleepers, a)
	}
	// The steps wake the second group first, in the order in which its processes fell asleep. Then they wake the first
	// group.
	for i, step := range []struct {
		bits    uint32
		sleeper int // the one that must wake; -1: nobody
	}{{2, 1}, {2, 3}, {2, -1}, {shmsync.MatchAny, 0}, {shmsync.MatchAny, 2}, {shmsync.MatchAny, -1}} {
		want := 1
		if step.sleeper < 0 {
			want = 0
		}
		if n := shmsync.WakeBitset(second, 1, step.bits); n != want {
			return "", fmt.Errorf("wake %d, of bits %#x, woke %d, not %d", i+1, step.bits, n, want)
		}
		if want == 0 {
			continue
		}
		if _, err := sleepers[step.sleeper].says(t, "woken"); err != nil {
			return "", fmt.Errorf("wake %d, of bits %#x: %w", i+1, step.bits, err)
		}
	}
	if n := wakeWord(mem, wakeOrder).Load(); n != 4 {
		return "", fmt.Errorf("%d of 4 woke", n)
	}
	return "two groups of two on CPUs " + place.JoinInts(cpus) + ": one group first, each in its order", nil
}

// beSleeper is the role of a process that sleeps with the bits in its second argument, until another process wakes
// sleepers with one of these bits.
func beSleeper(args []string) error {
	if err := pinAgent(args); err != nil {
		return err
	}
	bits, err := strconv.ParseUint(args[1], 10, 32)
	if err != nil {
		return err
	}
	mem, err := mapWords(os.NewFile(agentFD, "words"))
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	say("sleeps")
	for {
		o, err := shmsync.WaitBitset(control.FutexWord(wakeWord(mem, wakeFirst)), 0, uint32(bits), 0)
		switch {
		case err != nil:
			return err
		case o == shmsync.Woken:
			say("woken %d", wakeWord(mem, wakeOrder).Add(1))
			return nil
		}
	}
}

// proveWaitV makes a process sleep on two words, and wakes it through the second word.
func (t *selftester) proveWaitV() (string, error) {
	if err := shmsync.FeatureWaitV.Check(); err != nil {
		return "", cannot("%v", err)
	}
	f, mem, err := sleepersOf()
	if err != nil {
		return "", err
	}
	defer f.Close()
	defer unix.Munmap(mem)
	a, err := t.start(f, nil, "waitv", strconv.Itoa(t.cpus()[0]))
	if err != nil {
		return "", err
	}
	if _, err := a.says(t, "sleeps"); err != nil {
		return "", err
	}
	err = t.until("waking a sleeper on two words", func() (bool, error) {
		return shmsync.Wake(control.FutexWord(wakeWord(mem, wakeSecond)), 1) == 1, nil
	})
	if err != nil {
		return "", err
	}
	return a.says(t, "woken by")
}

// beWaitV is the role of a process that sleeps on two words until it is woken through the second one.
func beWaitV(args []string) error {
	if err := pinAgent(args); err != nil {
		return err
	}
	mem, err := mapWords(os.NewFile(agentFD, "words"))
	if err != nil {
		return err
	}
	words := []shmsync.WaitVEntry{
		shmsync.NewWaitVEntry(control.FutexWord(wakeWord(mem, wakeFirst)), 0),
		shmsync.NewWaitVEntry(control.FutexWord(wakeWord(mem, wakeSecond)), 0),
	}
	say("sleeps")
	for {
		index, o, err := shmsync.WaitV(words, 0)
		switch {
		case err != nil:
			return err
		case o != shmsync.Woken:
		case index != 1:
			return errors.New("woken by the first word, which nobody woke")
		default:
			say("woken by the second of two words")
			return nil
		}
	}
}
