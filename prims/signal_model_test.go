//go:build linux

package prims

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/shmsync/shmsync/internal/model"
)

// The words of the model. It is a SignalWaker with two queues, both of one signal.
const (
	kGate = iota // two gates; each has a scheduled bit, an executing bit, and name << 2
	kBits = iota + 1
	kSummary
	kPermits
	kWake  // the announced bit, and the sequence
	kItems // two words: the number of items in each queue
)

const (
	kScheduled = 1 << iota
	kExecuting
	kNameShift = iota

	kMostPermits = 6 // more permits than this make no difference
)

// The registers of a thread.
const (
	krQueue = iota
	krGate  // the gate word that the thread has read
	krWake  // the value of the wake word to sleep on, or to change
	krBack  // the step after the update of the summary
	krRouse // the step after the wake of the waiters
	krLeft  // how many items a producer has still to push; for a worker, 1 if it stops after this call of Acquire
	krTwice // the thread calls Finish once more than it may
)

// The steps of a thread.
const (
	ksIdle uint8 = iota
	ksScan
	ksWord
	ksGate
	ksTake
	ksClear
	ksDrop
	ksDropLook
	ksUnmark
	ksUnmarkClear
	ksUnmarkLook
	ksMark
	ksPermit
	ksRouse
	ksBump
	ksWake
	ksOther
	ksOtherPermits
	ksOtherSleep
	ksExecute
	ksConsume
	ksFinish
	ksFinishSwap
	ksFinishTwice
	ksPublish
	ksTry
	ksAnnounce
	ksTryAgain
	ksLastCheck
	ksSleep
	ksWoken
	ksQuit
	ksPass
	ksPassLook
	ksPush
	ksSchedule
	ksScheduleSwap
	ksFence
	ksReapGate
	ksReapPublish
	ksReapSignal
	ksReapPermits
	ksReapWake
	ksReaped
)

// signalModel has producers, workers, and a reaper.
type signalModel struct {
	workers, producers int
	queues, items      int  // items is how many each producer pushes
	cancel             bool // the last worker may give up for good
	stop               bool // the last worker may be stopped for ever while it executes
	kills              int  // how many producers and workers may die; the first worker never dies
	twice              bool // workers may call Finish twice
	release            int  // if not 0, a producer issues this many permits instead of pushing an item
	distinct           bool // explore all states, also those that are equivalent to others

	bug bug
}

func (m signalModel) explore(b bug) model.Result {
	m.bug = b
	y := model.System{
		Kills: m.kills, Spurious: true, Restart: true, Init: m.init,
		Check: m.check, Canon: m.canon, Show: m.show, MaySleep: m.maySleep,
		Done: m.done,
	}
	for i := range m.workers {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: fmt.Sprint("W", i), Process: i, Run: m.work, Mortal: m.kills > 0 && i > 0})
	}
	for i := range m.producers {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: fmt.Sprint("P", i), Process: m.workers + i, Run: m.produce, Mortal: m.kills > 0})
	}
	if m.alike() && !m.distinct {
		y.Symmetry = &model.Symmetry{Threads: m.workers, More: m.producers, Names: []int{krGate}, Rename: m.rename}
	}
	if m.kills > 0 {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: "reaper", Process: model.Threads - 1, Run: m.reap})
	}
	return y.Explore()
}

func (m *signalModel) init(s *model.Sys) {
	for i := range m.workers {
		s.Thread[i].PC = ksScan
		if m.release > 0 {
			s.Thread[i].PC, s.Thread[i].R[krLeft] = ksTry, 1
		}
	}
	for i := range m.producers {
		s.Thread[m.workers+i].PC, s.Thread[m.workers+i].R[krLeft] = ksPush, uint8(m.items)
	}
}

var (
	errTwoExecutors = errors.New("two execute one queue")
	errGate         = errors.New("a gate says what cannot be")
)

// inside reports whether a thread is at a step where it acts as the executor of a queue.
func inside(t *model.Thread) bool {
	switch t.PC {
	case ksClear, ksOther, ksOtherPermits, ksOtherSleep, ksExecute, ksConsume, ksFinish, ksFinishSwap:
		return true
	}
	return false
}

func (m *signalModel) check(s *model.Sys) error {
	var at [2]int
	for i := range m.workers {
		if t := &s.Thread[i]; inside(t) && s.Life[i] == model.Alive {
			at[t.R[krQueue]]++
		}
	}
	if at[0] > 1 || at[1] > 1 {
		return errTwoExecutors
	}
	for q := range m.queues {
		g := s.Mem[kGate+q]
		if executing := g&kExecuting != 0; executing != (g>>kNameShift != 0) || int(g>>kNameShift) > m.workers {
			return errGate
		}
	}
	return nil
}

// resolved reports whether no work is left in any queue, except in queues whose executor is stopped. After a
// death, items may be left: nobody knows of an item whose producer died after the push and before the Schedule.
func (m *signalModel) resolved(s *model.Sys) bool {
	died := false
	for _, l := range s.Life {
		died = died || l != model.Alive
	}
	for q := range m.queues {
		g := s.Mem[kGate+q]
		if n := g >> kNameShift; n != 0 && s.Thread[n-1].Run == model.Halted && s.Life[n-1] == model.Alive {
			continue
		}
		if g != 0 || s.Mem[kItems+q] != 0 && !died {
			return false
		}
	}
	return true
}

func (m *signalModel) done(s *model.Sys) bool { return m.resolved(s) && !m.unreaped(s) }

// maySleep reports whether workers may stay asleep: only if there is neither work nor a permit.
func (m *signalModel) maySleep(s *model.Sys, _ int) bool {
	return m.resolved(s) && s.Mem[kPermits] == 0
}

func (m *signalModel) unreaped(s *model.Sys) bool {
	for p, l := range s.Life {
		if l != model.Alive && s.Ghost[gReaped]&(1<<p) == 0 {
			return true
		}
	}
	return false
}

// canon makes equivalent states equal: it renumbers the sequence of the wake word, and clears registers that
// are no longer used.
func (m *signalModel) canon(s *model.Sys) {
	const first = 2
	now := s.Mem[kWake]
	s.Mem[kWake] = first | now&1
	for i := range s.Thread {
		t := &s.Thread[i]
		switch t.PC {
		case ksTryAgain, ksLastCheck, ksSleep, ksBump:
			if t.R[krWake]>>1 == now>>1 && t.R[krWake] != 0 {
				t.R[krWake] = first | t.R[krWake]&1
			} else {
				t.R[krWake] = 0 // the old value of the word never comes back
			}
		default:
			t.R[krWake] = 0
		}
		switch t.PC {
		case ksTake, ksFinishSwap, ksScheduleSwap:
		default:
			t.R[krGate] = 0
		}
		switch t.PC {
		case ksScan, ksWord, ksTry, ksAnnounce, ksTryAgain, ksLastCheck, ksSleep, ksWoken, ksQuit, ksPass, ksPassLook:
			t.R[krQueue], t.R[krBack], t.R[krRouse] = 0, 0, 0
		}
		if !m.distinct {
			m.forget(t)
		}
	}
	if m.alike() && !m.distinct && m.second(s) {
		m.exchange(s)
	}
}

// forget clears the registers that the thread writes before it reads them.
func (m *signalModel) forget(t *model.Thread) {
	back := uint8(ksExecute) // the step that follows the steps of the method common
	switch t.PC {
	case ksUnmark, ksUnmarkClear, ksUnmarkLook, ksMark:
		back = t.R[krBack]
		t.R[krRouse] = 0
	case ksPublish, ksDropLook:
		t.R[krRouse] = 0
	case ksPermit, ksRouse, ksBump, ksWake:
		back = t.R[krRouse]
		t.R[krBack] = 0
	default:
		t.R[krBack], t.R[krRouse] = 0, 0
	}
	if t.PC == ksPush || back == ksIdle || back == ksScan || back == ksPush {
		t.R[krQueue] = 0
	}
}

// alike reports whether the model has symmetries: all workers do the same, all producers do the same, and a state is
// equivalent to the state with the two queues exchanged. The model has none with a bug that uses a plain store.
func (m *signalModel) alike() bool {
	return m.kills == 0 && !m.cancel && !m.stop && m.bug != beginByStore && m.bug != publishByStore
}

// usesQueue reports whether the thread has a queue in its registers.
func usesQueue(t *model.Thread) bool {
	switch t.PC {
	case ksIdle, ksScan, ksWord, ksTry, ksAnnounce, ksTryAgain, ksLastCheck, ksSleep, ksWoken, ksQuit, ksPass, ksPassLook, ksPush:
		return false
	case ksUnmark, ksUnmarkClear, ksUnmarkLook, ksMark:
		return t.R[krBack] != ksScan && t.R[krBack] != ksPush
	case ksPermit, ksRouse, ksBump, ksWake:
		return t.R[krRouse] != ksIdle && t.R[krRouse] != ksScan && t.R[krRouse] != ksPush
	}
	return true
}

// second reports whether queue 1 comes before queue 0 in the order that canon makes. The order does not depend on the
// numbers of the threads.
func (m *signalModel) second(s *model.Sys) bool {
	if m.queues < 2 {
		return false
	}
	var key [2]uint64
	for q := range key {
		g := s.Mem[kGate+q]
		if g>>kNameShift != 0 {
			key[q] = 1
		}
		key[q] = key[q]<<2 | uint64(g&(kScheduled|kExecuting))
		key[q] = key[q]<<1 | uint64(s.Mem[kBits]>>q&1)
		key[q] = key[q]<<1 | uint64(s.Mem[kItems+q]&1)
	}
	if key[0] != key[1] {
		return key[1] > key[0]
	}
	for i := range s.Thread {
		t := &s.Thread[i]
		if !usesQueue(t) {
			continue
		}
		step := uint64(t.PC)<<16 | uint64(t.R[krGate]&(kScheduled|kExecuting))<<8 | uint64(t.R[krLeft])
		key[t.R[krQueue]] += step * step
	}
	return key[1] > key[0]
}

// exchange exchanges the two queues.
func (m *signalModel) exchange(s *model.Sys) {
	both := func(bits uint8) uint8 { return bits&1<<1 | bits>>1&1 }
	s.Mem[kGate], s.Mem[kGate+1] = s.Mem[kGate+1], s.Mem[kGate]
	s.Mem[kItems], s.Mem[kItems+1] = s.Mem[kItems+1], s.Mem[kItems]
	s.Mem[kBits] = both(s.Mem[kBits])
	for i := range s.Thread {
		t := &s.Thread[i]
		if usesQueue(t) {
			t.R[krQueue] = 1 - t.R[krQueue]
		}
		if t.PC == ksDropLook {
			t.R[krBack] = both(t.R[krBack]) // the bits that were left
		}
	}
}

// rename changes the numbers of the workers in the gates, and in the gate words that the threads have read.
func (m *signalModel) rename(s *model.Sys, to *[model.Threads]uint8) {
	gate := func(g uint8) uint8 {
		if n := int(g >> kNameShift); n == 0 || n > m.workers { // more only with a bug
			return g
		}
		return g&(1<<kNameShift-1) | (to[g>>kNameShift-1]+1)<<kNameShift
	}
	for q := range 2 {
		s.Mem[kGate+q] = gate(s.Mem[kGate+q])
	}
	for i := range s.Thread {
		s.Thread[i].R[krGate] = gate(s.Thread[i].R[krGate])
	}
}

func (m *signalModel) show(s *model.Sys) string {
	str := ""
	for q := range m.queues {
		g := s.Mem[kGate+q]
		str += fmt.Sprintf("gate %d%d by %d, %d items; ", g>>1&1, g&1, g>>kNameShift, s.Mem[kItems+q])
	}
	return str + fmt.Sprintf("bits %b, summary %b, permits %d, announced %d", s.Mem[kBits], s.Mem[kSummary], s.Mem[kPermits], s.Mem[kWake]&1)
}

// work is a worker. It calls Next, executes the queue, and calls Finish. If there is nothing to execute, it
// calls Acquire.
func (m *signalModel) work(x *model.Exec) {
	q := x.R(krQueue)
	gate, mask := kGate+int(*q), uint8(1)<<*q
	switch x.PC() {
	case ksIdle:
		x.Disable() // it has given up
	case ksScan:
		x.Say("looks at the summary")
		x.Goto(ksWord)
		if x.Load(kSummary) == 0 {
			x.Goto(ksTry)
		}
	case ksWord:
		set := x.Load(kBits)
		if set == 0 {
			x.Say("finds a signal without bits")
			m.unmark(x, ksScan)
			return
		}
		k := x.Choose(bits.OnesCount8(set))
		if k == 1 || set == 2 {
			*q = 1
		}
		x.Say(fmt.Sprint("finds the bit of queue ", *q))
		x.Goto(ksGate)
		if m.bug == beginByStore {
			x.Goto(ksClear) // first it acquires the bit, and then it begins the execution
		}
	case ksGate:
		x.Say("looks at the gate")
		*x.R(krGate) = x.Load(gate)
		x.Goto(ksDrop)
		if g := *x.R(krGate); g&kScheduled != 0 && g&kExecuting == 0 {
			x.Goto(ksTake)
		}
	case ksTake:
		x.Say("begins")
		next := kExecuting | uint8(x.Me+1)<<kNameShift
		switch {
		case m.bug == beginByStore:
			x.Store(gate, next)
			x.Goto(ksExecute)
		case x.CAS(gate, *x.R(krGate), next):
			x.Goto(ksClear)
		default:
			x.Goto(ksGate)
		}
	case ksClear:
		x.Say("clears the bit")
		left := kUpdate(x, kBits, func(v uint8) uint8 { return v &^ mask })
		x.Goto(ksOther)
		switch m.bug {
		case nobodyElseWoken:
			x.Goto(ksExecute)
		case beginByStore:
			x.Goto(ksTake)
		}
		if left == 0 {
			m.unmark(x, x.PC())
		}
	case ksDrop:
		x.Say("clears a stale bit")
		left := kUpdate(x, kBits, func(v uint8) uint8 { return v &^ mask })
		*x.R(krBack) = left
		x.Goto(ksDropLook)
		if m.bug == dropBlindly {
			m.afterDrop(x, left)
		}
	case ksDropLook:
		x.Say("looks at the gate once more")
		left := *x.R(krBack)
		*x.R(krBack) = ksScan
		if g := x.Load(gate); g&kScheduled != 0 && g&kExecuting == 0 {
			x.Goto(ksPublish)
			return
		}
		m.afterDrop(x, left)
	case ksOther:
		x.Say("looks whether there is more")
		x.Goto(ksOtherPermits)
		if x.Load(kSummary) == 0 {
			x.Goto(ksExecute)
		}
	case ksOtherPermits:
		x.Say("looks for a permit for it")
		x.Goto(ksOtherSleep)
		if x.Load(kPermits) != 0 {
			x.Goto(ksExecute)
		}
	case ksOtherSleep:
		x.Say("looks whether anybody sleeps")
		*x.R(krRouse) = ksExecute
		x.Goto(ksPermit)
		if x.Load(kWake)&1 == 0 {
			x.Goto(ksExecute)
		}
	case ksExecute:
		n := 1
		if m.stop && x.Me == m.workers-1 {
			n = 2
		}
		if x.Choose(n) == 1 {
			x.Say("is stopped for ever")
			x.Optional()
			x.Thread[x.Me].Run = model.Halted
			return
		}
		x.Say("looks into the queue")
		x.Goto(ksFinish)
		if x.Load(kItems+int(*q)) != 0 {
			x.Goto(ksConsume)
		}
	case ksConsume:
		x.Say("empties the queue")
		x.Update(kItems+int(*q), func(uint8) uint8 { return 0 })
		x.Goto(ksFinish)
	case ksFinish, ksFinishSwap, ksFinishTwice:
		m.finish(x, gate)
	default:
		m.common(x)
	}
}

// finish models Finish. It may also call Finish a second time, which is a mistake of the caller.
func (m *signalModel) finish(x *model.Exec, gate int) {
	mine := kExecuting | uint8(x.Me+1)<<kNameShift
	after := func(again bool) {
		*x.R(krBack) = ksScan
		switch {
		case again:
			x.Goto(ksPublish)
		case m.twice && *x.R(krTwice) == 0:
			*x.R(krTwice) = 1
			x.Goto(ksFinishTwice)
		default:
			x.Goto(ksScan)
		}
	}
	switch x.PC() {
	case ksFinish:
		if m.bug == finishSubtracts {
			x.Say("finishes by a subtraction")
			v := kUpdate(x, gate, func(v uint8) uint8 { return v - mine })
			after(v&kScheduled != 0)
			return
		}
		x.Say("finishes: looks at the gate")
		*x.R(krGate) = x.Load(gate)
		x.Goto(ksFinishSwap)
	case ksFinishSwap:
		x.Say("finishes")
		g := *x.R(krGate)
		if x.CAS(gate, g, g&kScheduled) {
			after(g&kScheduled != 0)
			return
		}
		x.Goto(ksFinish)
	case ksFinishTwice:
		x.Say("finishes once more")
		x.Goto(ksScan)
		if m.bug == finishSubtracts {
			x.Update(gate, func(v uint8) uint8 { return v - mine })
		}
		// The handle records that the worker executes nothing any more, so the second call changes nothing.
	}
}

// unmark models unmarkIfEmpty. back is the step that follows.
func (m *signalModel) unmark(x *model.Exec, back uint8) {
	*x.R(krBack) = back
	x.Goto(ksUnmark)
}

func (m *signalModel) afterDrop(x *model.Exec, left uint8) {
	x.Goto(ksScan)
	if left == 0 {
		m.unmark(x, ksScan)
	}
}

// common has the steps that producers, workers and the reaper have in common.
func (m *signalModel) common(x *model.Exec) {
	q, back := x.R(krQueue), x.R(krBack)
	switch x.PC() {
	case ksUnmark:
		x.Say("looks at the bits")
		x.Goto(ksUnmarkClear)
		if x.Load(kBits) != 0 {
			x.Goto(*back)
		}
	case ksUnmarkClear:
		x.Say("takes the signal out of the summary")
		x.Update(kSummary, func(uint8) uint8 { return 0 })
		x.Goto(ksUnmarkLook)
		if m.bug == unmarkWithoutLook {
			x.Goto(*back)
		}
	case ksUnmarkLook:
		x.Say("looks at the bits once more")
		x.Goto(ksMark)
		if x.Load(kBits) == 0 {
			x.Goto(*back)
		}
	case ksPublish:
		x.Say("sets the bit")
		x.Update(kBits, func(v uint8) uint8 { return v | 1<<*q })
		x.Goto(ksMark)
		if m.bug == finishForgetsSummary && x.Me < m.workers {
			x.Goto(*back)
		}
	case ksMark:
		x.Say("marks the signal")
		was := x.Mem[kSummary]
		x.Update(kSummary, func(uint8) uint8 { return 1 })
		*x.R(krRouse) = *back
		x.Goto(*back)
		if was == 0 {
			x.Goto(ksPermit)
		}
	case ksPermit:
		x.Say("issues a permit")
		x.Update(kPermits, func(v uint8) uint8 { return min(v+1, kMostPermits) })
		x.Goto(ksRouse)
	case ksRouse:
		x.Say("looks whether anybody sleeps")
		*x.R(krWake) = x.Load(kWake)
		x.Goto(*x.R(krRouse))
		if *x.R(krWake)&1 != 0 {
			x.Goto(ksBump)
		}
	case ksBump:
		x.Say("bumps the wake word")
		x.Goto(ksRouse)
		if w := *x.R(krWake); w != 0 && x.CAS(kWake, w, (w+2)&^1) {
			x.Goto(ksWake)
		}
	case ksWake:
		x.Say("wakes one")
		x.Wake(kWake, 1)
		x.Goto(*x.R(krRouse))
	default:
		m.acquire(x)
	}
}

// take takes a permit.
func (m *signalModel) take(x *model.Exec) bool {
	had := x.Mem[kPermits] != 0
	x.Update(kPermits, func(v uint8) uint8 {
		if v == 0 {
			return 0
		}
		return v - 1
	})
	return had
}

// acquire is Acquire.
func (m *signalModel) acquire(x *model.Exec) {
	switch x.PC() {
	case ksTry:
		x.Say("tries to take a permit")
		x.Goto(ksAnnounce)
		if m.take(x) {
			m.gone(x)
		}
	case ksAnnounce:
		x.Say("announces")
		*x.R(krWake) = kUpdate(x, kWake, func(v uint8) uint8 { return v | 1 })
		x.Goto(ksTryAgain)
	case ksTryAgain:
		x.Say("tries once more")
		x.Goto(ksLastCheck)
		if m.bug == noLastCheck || m.bug == reapSkipsPermits {
			x.Goto(ksSleep)
		}
		if m.take(x) {
			x.Goto(ksPass)
			if m.bug == takeWithoutPass {
				m.gone(x)
			}
		}
	case ksLastCheck:
		x.Say("looks at the summary once more")
		x.Goto(ksSleep)
		if x.Load(kSummary) != 0 {
			x.Goto(ksPass)
		}
	case ksWoken:
		n := 1
		if m.cancel && x.Me == m.workers-1 {
			n = 2
		}
		x.Say("is awake")
		x.Goto(ksAnnounce)
		if x.Choose(n) == 1 {
			x.Say("is awake, and finds that its context has ended")
			x.Optional()
			x.Goto(ksQuit)
		}
	case ksSleep:
		x.Say("sleeps")
		quit := uint8(0)
		if m.cancel && x.Me == m.workers-1 {
			quit = ksQuit
		}
		value := *x.R(krWake)
		if m.bug == sleepWithoutCompare {
			value = x.Mem[kWake]
		}
		x.Sleep(ksWoken, quit, model.Wait{Word: kWake, Value: value})
	case ksQuit:
		x.Say("gives up: tries a last time")
		*x.R(krLeft) = 1
		if m.take(x) {
			*x.R(krLeft) = 0
		}
		x.Goto(ksPass)
		if m.bug == quitKeepsWake {
			m.gone(x)
		}
	case ksPass:
		x.Say("announces again")
		x.Update(kWake, func(v uint8) uint8 { return v | 1 })
		x.Goto(ksPassLook)
	case ksPassLook:
		x.Say("looks for more permits")
		if x.Load(kPermits) == 0 {
			m.gone(x)
			return
		}
		*x.R(krRouse) = ksScan
		if *x.R(krLeft) != 0 {
			*x.R(krRouse) = ksIdle
		}
		x.Goto(ksRouse)
	}
}

// gone ends a call of Acquire. After that the worker searches for work again, or stops for good.
func (m *signalModel) gone(x *model.Exec) {
	if *x.R(krLeft) != 0 {
		x.Idle()
		return
	}
	x.Goto(ksScan)
}

// produce is a producer.
func (m *signalModel) produce(x *model.Exec) {
	q := x.R(krQueue)
	switch x.PC() {
	case ksIdle:
		x.Disable()
	case ksPush:
		left := x.R(krLeft)
		if *left == 0 {
			x.Say("has no more")
			x.Idle()
			return
		}
		*left--
		if m.release > 0 {
			x.Say("releases")
			x.Update(kPermits, func(v uint8) uint8 { return v + uint8(m.release) })
			*x.R(krRouse) = ksPush
			x.Goto(ksRouse)
			return
		}
		*q = uint8(x.Choose(m.queues))
		x.Say(fmt.Sprint("pushes into queue ", *q))
		if w := kItems + int(*q); m.bug == publishByStore {
			x.Store(w, 1)
		} else {
			x.Update(w, func(uint8) uint8 { return 1 })
		}
		x.Goto(ksSchedule)
	case ksSchedule:
		x.Say("schedules: looks at the gate")
		*x.R(krGate) = x.Load(kGate + int(*q))
		x.Goto(ksScheduleSwap)
		if *x.R(krGate)&kScheduled != 0 {
			x.Goto(ksPush)
		}
	case ksScheduleSwap:
		x.Say("schedules")
		g := *x.R(krGate)
		*x.R(krBack) = ksPush
		switch {
		case !x.CAS(kGate+int(*q), g, g|kScheduled):
			x.Goto(ksSchedule)
		case g&kExecuting != 0:
			x.Goto(ksPush)
		default:
			x.Goto(ksPublish)
		}
	default:
		m.common(x)
	}
}

// kUpdate is an atomic read-modify-write that returns the new value.
func kUpdate(x *model.Exec, w int, f func(uint8) uint8) (v uint8) {
	x.Update(w, func(old uint8) uint8 {
		v = f(old)
		return v
	})
	return v
}
