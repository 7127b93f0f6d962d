//go:build linux

package torture

import (
	_ "embed" // for workerSource
	"fmt"
	"os"
	"strconv"

	"github.com/shmsync/shmsync/internal/bench/child"
	"github.com/shmsync/shmsync/internal/bench/peers"
)

// workerSource is the program of the victims in C.
//
//go:embed worker.c
var workerSource string

// dataJobs are the jobs of crash-safe data. Programs in C can work at them. Between rounds, all blocks of the heap
// are those of their data, unless other jobs take part.
var dataJobs = mustJobs("synchronized", "tx", "rwtx", "test:unsaved")

func mustJobs(names ...string) uint64 {
	set, err := jobsOf(names)
	if err != nil {
		panic(err)
	}
	return set
}

// buildInC compiles the victims in C.
func buildInC(cc string) (*os.File, error) {
	// Compilers remove and move stores only when they optimize.
	return peers.BuildWorker(cc, "torture", workerSource, append([]string{"-std=gnu11", "-O2", "-pthread"}, pageFlags()...)...)
}

// launchVictim starts a victim. Without a program in C, all victims are Go programs.
func (t *torturer) launchVictim(lane int, v victim) (*tortured, error) {
	if v.c && t.inC != nil {
		t.victimsInC.Add(1)
		return t.launchInC(lane, v)
	}
	return t.launch([]string{"GOGC=off"}, "victim", strconv.Itoa(v.number), strconv.Itoa(lane))
}

// launchInC starts a victim in C.
func (t *torturer) launchInC(lane int, v victim) (*tortured, error) {
	self, err := child.Self()
	if err != nil {
		return nil, err
	}
	program := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), t.inC.Fd())
	n := func(i int) string { return strconv.Itoa(i) }
	argv := []string{program, n(v.number), n(lane), n(v.g), strconv.FormatUint(v.seed, 10), v.outcome.String(), n(int(v.delay)), n(v.step), jobList(v.jobs)}
	argv = append(append(argv, self...), "torture-worker", "nothing")
	return t.launchLine(nil, argv)
}
