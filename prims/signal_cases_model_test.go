//go:build linux

package prims

import (
	"testing"

	"github.com/shmsync/shmsync/internal/model"
)

// Mistakes that the model can have. The protocol was derived from an earlier protocol, which had the holes A to E; see
// docs/testing/features.md. A letter before a text names the hole that this mistake would open again.
const (
	finishForgetsSummary bug = "A: Finish sets the bit of the queue again, but not that of the signal in the summary"
	beginByStore         bug = "B: Begin is a plain store"
	publishByStore       bug = "B: the producer publishes by a plain store"
	finishSubtracts      bug = "C: Finish subtracts the executing bit and the name, even if the gate no longer has them"
	reapNothing          bug = "D: no process repairs the words after a death"
	reapSkipsBit         bug = "D: after a death, a scheduled gate without its bit does not get the bit"
	reapSkipsSummary     bug = "D: after a death, a signal that has bits is not marked in the summary"
	reapSkipsExecutor    bug = "D: a dead executor stays the executor"
	reapSkipsPermits     bug = "D: a permit that a dead worker had taken is not replaced, and waiters look only at the permits"
	sleepWithoutCompare  bug = "E: a waiter sleeps without a comparison"
	quitKeepsWake        bug = "E: a waiter that gives up does not pass on the wake that it has got"

	takeWithoutPass   bug = "a waiter that takes a permit after a sleep passes no wake on"
	unmarkWithoutLook bug = "a signal is taken out of the summary without a second check of its bits"
	dropBlindly       bug = "a stale bit is cleared without a second check of the gate"
	noLastCheck       bug = "a waiter that has announced itself does not read the summary once more"
	nobodyElseWoken   bug = "a worker that finds more work than it takes wakes no other worker"
)

// TestModelSignalWaker checks that each item is executed, and that no queue has two executors, while producers and
// workers run at the same time.
func TestModelSignalWaker(t *testing.T) {
	one := signalModel{workers: 1, producers: 1, queues: 1, items: 3}
	pair := signalModel{workers: 1, producers: 2, queues: 2, items: 1}
	two := signalModel{workers: 2, producers: 2, queues: 1, items: 1}
	both := signalModel{workers: 2, producers: 2, queues: 2, items: 1}
	requireModels(t, []exploration{
		{"one and one", small, one.explore, []bug{finishForgetsSummary, beginByStore, publishByStore, sleepWithoutCompare}},
		{"one and two, two queues", small, pair.explore, []bug{unmarkWithoutLook}},
		{"two and two", large, two.explore, nil},
		{"two and two, two queues", large, both.explore, []bug{finishForgetsSummary}},
	})
}

// TestModelSignalFinishTwice: a second Finish of the same execution changes nothing.
func TestModelSignalFinishTwice(t *testing.T) {
	m := signalModel{workers: 1, producers: 1, queues: 1, items: 2, twice: true}
	requireModels(t, []exploration{{"one and one", small, m.explore, []bug{finishSubtracts}}})
}

// TestModelSignalPermits checks that no waiter stays asleep while there is a permit. Each Release issues two permits,
// but wakes only one waiter, and a waiter that takes a permit wakes the next one. The producers only call Release, and
// push no items.
func TestModelSignalPermits(t *testing.T) {
	two := signalModel{workers: 2, producers: 1, items: 1, release: 2}
	three := signalModel{workers: 3, producers: 1, items: 1, release: 2, cancel: true}
	most := signalModel{workers: 3, producers: 2, items: 1, release: 2, cancel: true}
	requireModels(t, []exploration{
		{"two take two", small, two.explore, []bug{takeWithoutPass, sleepWithoutCompare}},
		{"three and one", large, three.explore, []bug{takeWithoutPass, sleepWithoutCompare}},
		{"three and two", large, most.explore, []bug{takeWithoutPass, sleepWithoutCompare}},
	})
}

// TestModelSignalLeave checks that the other worker executes the items if a worker gives up for good, or is stopped for
// good. A stopped worker keeps the queue that it executes.
func TestModelSignalLeave(t *testing.T) {
	quit := signalModel{workers: 2, producers: 1, queues: 1, items: 2, cancel: true}
	stop := signalModel{workers: 2, producers: 1, queues: 2, items: 2, stop: true}
	requireModels(t, []exploration{
		{"one gives up", small, quit.explore, []bug{quitKeepsWake, dropBlindly}},
		{"one is stopped", large, stop.explore, []bug{nobodyElseWoken, noLastCheck}},
	})
}

// TestModelSignalDeath checks that no queue stays scheduled without a worker when producers and workers die, at any
// step.
func TestModelSignalDeath(t *testing.T) {
	single := signalModel{workers: 2, producers: 1, queues: 1, items: 1, kills: 1}
	one := signalModel{workers: 2, producers: 1, queues: 1, items: 2, kills: 1}
	two := signalModel{workers: 2, producers: 1, queues: 2, items: 2, kills: 1}
	both := signalModel{workers: 2, producers: 1, queues: 1, items: 1, kills: 2}
	requireModels(t, []exploration{
		{"an item", large, single.explore, []bug{reapNothing, reapSkipsBit, reapSkipsSummary, reapSkipsExecutor, reapSkipsPermits}},
		{"two items", large, one.explore, []bug{dropBlindly}},
		{"two queues", large, two.explore, []bug{reapSkipsBit, reapSkipsExecutor}},
		{"two deaths", large, both.explore, []bug{reapSkipsExecutor}},
	})
}

// TestModelSignalSymmetry: a search that leaves out states which are equivalent to visited states finds the same
// mistakes as a search of all states, after as many steps.
func TestModelSignalSymmetry(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a run without -short: with it, the first exploration of each model runs")
	}
	requireSameAsDistinct(t, func(distinct bool) []func(bug) model.Result {
		all := []signalModel{
			{workers: 1, producers: 2, queues: 2, items: 1},
			{workers: 2, producers: 1, queues: 1, items: 1},
			{workers: 2, producers: 1, items: 1, release: 2},
			{workers: 1, producers: 1, queues: 1, items: 2, twice: true},
		}
		var explore []func(bug) model.Result
		for _, m := range all {
			m.distinct = distinct
			explore = append(explore, m.explore)
		}
		return explore
	}, []bug{"", finishForgetsSummary, beginByStore, publishByStore, finishSubtracts, sleepWithoutCompare, takeWithoutPass, unmarkWithoutLook, dropBlindly, noLastCheck, nobodyElseWoken})
}
