//go:build linux

package torture

import (
	_ "embed" // for workerSource
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/include"
	"github.com/shmsync/shmsync/internal/bench/child"
	"github.com/shmsync/shmsync/internal/bench/peers"
)

// workerSource is the program of the victims and residents in C.
//
//go:embed worker.c
var workerSource string

// dataJobs is the set of the jobs that change crash-safe data. Programs in C can work at these jobs, too. If no other
// jobs take part, the check between two rounds knows to which data each allocated block belongs; see party.balance.
var dataJobs = mustJobs("synchronized", "tx", "rwtx", "test:unsaved", "test:unseen")

func mustJobs(names ...string) uint64 {
	set, err := jobsOf(names)
	if err != nil {
		panic(err)
	}
	return set
}

// buildInC compiles the program of the victims and residents in C. If plant is not nil, the program uses the C header
// that plant returns, which contains a mistake.
func buildInC(cc string, plant func(header string) string) (*os.File, error) {
	header := include.Header
	if plant != nil {
		header = plant(header)
	}
	// With -O2, the compiler removes and moves stores wherever the language allows that. So the torture tests whether
	// the C library is correct under such a compiler.
	return peers.BuildWorker(cc, "torture", workerSource, header, append([]string{"-std=gnu11", "-O2", "-pthread"}, pageFlags()...)...)
}

// launchVictim starts a victim. If there is no program in C, all victims are Go programs.
func (t *torturer) launchVictim(lane int, v victim) (*tortured, error) {
	if v.c && t.inC != nil {
		t.victimsInC.Add(1)
		return t.launchInC(lane, v)
	}
	return t.launch([]string{"GOGC=off"}, "victim", strconv.Itoa(v.number), strconv.Itoa(lane))
}

// launchInC starts a victim that is a program in C.
func (t *torturer) launchInC(lane int, v victim) (*tortured, error) {
	self, err := child.Self()
	if err != nil {
		return nil, err
	}
	program := t.programInC()
	n := func(i int) string { return strconv.Itoa(i) }
	argv := []string{program, n(v.number), n(lane), n(v.g), strconv.FormatUint(v.seed, 10), v.outcome.String(), n(int(v.delay)), n(v.step), jobList(v.jobs)}
	argv = append(append(argv, self...), "torture-worker", "nothing")
	return t.launchLine(nil, argv)
}

func (t *torturer) programInC() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), t.inC.Fd()) }

// residesInC reports whether the resident with this number is a program in C. The first resident, number 0, is a Go
// program, because only such a resident can check the arena. If some jobs have no workers in C, the second resident
// is a Go program, too, because each of these jobs needs two residents.
func (t *torturer) residesInC(worker int) bool {
	switch {
	case t.inC == nil:
		return false
	case t.only&^dataJobs == 0:
		return worker%2 == 1
	}
	return worker == 2
}

// launchResidentInC starts a resident in C, and the goroutines of the parent that measure for that resident.
func (t *torturer) launchResidentInC(worker int) (*tortured, error) {
	var work []string
	for i, j := range jobs {
		if t.only&dataJobs&(1<<i) != 0 {
			work = append(work, fmt.Sprintf("%s:%d", j.name, i))
		}
	}
	argv := []string{t.programInC(), "resident", strconv.Itoa(worker), strconv.FormatUint(rand.Uint64(), 10), strings.Join(work, ",")}
	of := &party{page: t.page, label: fmt.Sprintf("resident %d in C", worker), worker: &t.page.worker[worker]}
	first := of.worker.finished.n.Load()
	p, err := t.launchLine(nil, argv)
	if err != nil {
		return nil, err
	}
	t.following.Go(func() { of.measureFinished(p, first) })
	t.following.Go(func() { of.followThreads(p) })
	return p, nil
}

// measureFinished measures the operations of a resident in C until the resident ends. The parameter next is the
// number of the first operation. If the parent gets no CPU for a long time, many operations are not measured yet. Of
// these, measureFinished measures only the last tortureFinished/2.
func (p *party) measureFinished(of *tortured, next uint64) {
	for f := &p.worker.finished; ; time.Sleep(controlPeriod) {
		ended := of.ended()
		for n := f.n.Load(); next < n; next++ {
			if n-next >= tortureFinished/2 {
				next = n - tortureFinished/2
			}
			t := &f.turn[next%tortureFinished]
			if i := t.of.Load(); i < tortureJobsMost*tortureThreads {
				p.measure(int(i/tortureThreads), int(i%tortureThreads), t.from.Load(), t.to.Load())
			}
		}
		if ended {
			return
		}
	}
}

// followThreads records how long the threads of a resident in C have waited for a CPU, until the resident ends.
func (p *party) followThreads(of *tortured) {
	threads := map[string]*threadDelay{}
	defer closeThreads(threads)
	for n := 0; !of.ended(); n++ {
		if n%32 == 0 {
			findThreads(of.cmd.Process.Pid, threads)
		}
		p.noteDelays(threads, shmsync.Monotonic())
		time.Sleep(controlPeriod)
	}
}
