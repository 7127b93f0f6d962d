//go:build linux

package prims

import "testing"

// Mistakes that a counter could have. The model must find each of them.
const (
	ctrNoHelp    bug = "a call commits over a record that is not complete"
	ctrReapFirst bug = "a reaper folds a share before it completes the record"
	ctrNoRecheck bug = "a helper does not look at the commit word after it read a word"
	ctrNoHead    bug = "a helper does not look at the head after it read an entry"
	ctrHeadLast  bug = "the head of a record is written after its entries"
	ctrShort     bug = "versions have two bits"
	ctrNoPeriod  bug = "a zero does not make shares void"
	ctrNoLock    bug = "two goroutines write the record of their process at once"
)

// TestModelCounter: two participants call Add, Done, Reset and Claim, and die. A participant may be stopped at each
// step for any time. After each step the model compares the state with the effect of the calls that have taken
// effect.
func TestModelCounter(t *testing.T) {
	two := ctrModel{goroutines: 1, calls: 2}
	alone := ctrModel{goroutines: 1, calls: 3}
	dies := ctrModel{goroutines: 1, calls: 2, kills: true, reset: true}
	four := ctrModel{goroutines: 2, calls: 1, kills: true}
	claims := ctrModel{goroutines: 1, calls: 2, claims: true}
	inherits := ctrModel{goroutines: 1, calls: 2, kills: true, claims: true}
	requireModels(t, []exploration{
		{"one goroutine each, two calls", small, two.explore, []bug{ctrNoHelp}},
		{"one goroutine each, three calls", large, alone.explore, []bug{ctrNoHelp, ctrNoRecheck, ctrNoPeriod, ctrShort, ctrHeadLast, ctrNoHead}},
		{"deaths and Reset", small, dies.explore, []bug{ctrReapFirst}},
		{"Claim", large, claims.explore, []bug{ctrNoHelp}},
		{"deaths and Claim", large, inherits.explore, []bug{ctrReapFirst}},
		{"two goroutines each, deaths", large, four.explore, []bug{ctrNoLock}},
	})
}

// Mistakes that the waits of a counter could have. The model must find each of them.
const (
	cwNoTell    bug = "Add does not tell of a zero that is untold"
	cwLateRead  bug = "a waiter reads the events after it made the word watched"
	cwWakeFirst bug = "a process wakes before it changes the events"
	cwNoTicket  bug = "a waiter does not compare the ticket with the one at its arrival"
	cwSameAgain bug = "a zero takes the ticket of the last one"
	cwPlain     bug = "a zero of a watched word is told without a ticket"
)

// TestModelCounterWaits: waiters wait for a counter that rises and falls. A wait has to end if the counter becomes 0
// after the waiter has made the commit word watched. A wait must not end before the counter was 0. A process that
// stops for ever, at any step, does not keep a wait from ending.
func TestModelCounterWaits(t *testing.T) {
	two := cwModel{calls: []uint8{3, 2}, waiters: 1}
	both := cwModel{calls: []uint8{2, 2}, waiters: 2}
	stops := cwModel{calls: []uint8{3, 2}, waiters: 1, stops: true}
	requireModels(t, []exploration{
		{"two processes change it", small, two.explore, []bug{cwNoTell, cwLateRead, cwWakeFirst, cwNoTicket, cwPlain}},
		{"two waiters", large, both.explore, []bug{cwSameAgain}},
		{"one process stops for ever", small, stops.explore, []bug{cwNoTell}},
	})
}
