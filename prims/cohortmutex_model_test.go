//go:build linux

package prims

import (
	"errors"
	"fmt"
	"testing"

	"github.com/shmsync/shmsync/internal/model"
)

// cohortModel is a CohortMutex and its callers, one thread in each process. To take a mutex is one
// step, and to release it is one step: the models of Mutex show that this is right even when
// processes die or sleep. A timeout may pass at any moment, unless the field patient is set.
type cohortModel struct {
	nodes   []int // the NUMA node of each thread
	cancels bool  // contexts may end
	kills   uint8 // number of threads that may die
	stops   uint8 // number of threads that may be stopped for ever, while they do not hold the global lock
	wild    uint8 // how many times a peer may overwrite turn
	patient bool  // no timeout passes, so only the turn word decides which node goes first
	policy  Policy
	bug     bug

	distinct bool // explore all states, also those that are equivalent to others
}

const (
	cohortThreads = 4
	cohortLost    = 255 // the value of global after its holder has died
)

type cohortState struct {
	global    uint8 // the global lock: 0, 1 plus its holder, or cohortLost
	localLock [2]uint8
	turn      cohortTurn
	thread    [cohortThreads]cohortThread
	kills     uint8
	stops     uint8
	wild      uint8
	run       uint8 // how many times in a row the node of the last holder has got the lock while another node waited
}

// cohortThread is a thread. A node has at most two threads, and their numbers follow each other.
type cohortThread struct {
	pc   uint8
	life uint8
	has  bool // the thread has its local lock
	late bool // the context of the thread has ended
	vain bool // the turn of its node was over, and the thread let the other node go first, in vain
}

const (
	cIdle      uint8 = iota
	cTry             // tries a free lock, because its node need not yield
	cLocalLock       // wants its local lock
	cWay             // lets others go first
	cLock            // waits for the global lock
	cTook
	cGive
	cHold
	cLeave
)

const (
	cLives uint8 = iota
	cStopped
	cDied
)

const (
	cohortKeepsLocalLock   bug = "a waiter that gives up keeps its local lock"
	cohortNoTimeout        bug = "a waiter at a local lock waits for ever"
	cohortDefersAlways     bug = "others go first for ever"
	cohortIgnoresLocalLock bug = "others go first though nobody of them waits, for ever"
	cohortNoBound          bug = "a node's turn is never over"
	cohortNoReap           bug = "nobody takes a local lock from the dead, and the waiters there wait for ever"
	cohortInherits         bug = "the holder of the local lock has the lock after an unlock by its node"
	cohortAnew             bug = "a holder that had decided before begins a new turn"
	cohortFastBarges       bug = "a newcomer takes a free lock, whichever node has the turn"
)

var (
	errCohortTwo       = errors.New("two threads hold the mutex")
	errCohortLocalLock = errors.New("a local lock names a living thread that does not have it")
	errCohortRun       = errors.New("a node got the lock too often in a row while the other node waited")
)

func (m cohortModel) explore(b bug) model.Result {
	m.bug = b
	next := func(s *cohortState, emit func(model.Step[cohortState])) {
		m.next(s, func(step model.Step[cohortState]) {
			if !m.distinct {
				m.canon(&step.To)
			}
			emit(step)
		})
	}
	spec := model.Spec[cohortState]{Init: []cohortState{{}}, Next: next, Check: m.check, Done: m.done, Show: m.show}
	return spec.Explore()
}

// canon makes equivalent states equal. It sorts the threads of each node, because these threads are interchangeable.
// The two nodes are interchangeable, too, if both have two threads and no peer overwrites turn.
func (m *cohortModel) canon(s *cohortState) {
	m.sort(s)
	if m.wild != 0 || len(m.nodes) != 4 {
		return
	}
	other := *s
	for i := range 2 {
		other.thread[i], other.thread[i+2] = s.thread[i+2], s.thread[i]
	}
	other.localLock[0], other.localLock[1] = s.localLock[1], s.localLock[0]
	opposite := func(name *uint8) {
		if *name != 0 && *name != cohortLost {
			*name = (*name+1)%4 + 1
		}
	}
	opposite(&other.global)
	opposite(&other.localLock[0])
	opposite(&other.localLock[1])
	if node := s.turn.node(); node == 0 || node == 1 {
		other.turn = makeCohortTurn(1-node, s.turn.quiet(), s.turn.passes())
	}
	if other.before(s) {
		*s = other
	}
}

// sort sorts the threads of each node.
func (m *cohortModel) sort(s *cohortState) {
	for i := 1; i < len(m.nodes); i++ {
		if node := m.nodes[i]; m.nodes[i-1] == node && s.key(i, node) < s.key(i-1, node) {
			s.thread[i-1], s.thread[i] = s.thread[i], s.thread[i-1]
			for _, name := range []*uint8{&s.global, &s.localLock[0], &s.localLock[1]} {
				switch *name {
				case uint8(i):
					*name++
				case uint8(i + 1):
					*name--
				}
			}
		}
	}
}

// key describes a thread of a node by a number.
func (s *cohortState) key(i, node int) (key uint32) {
	t := &s.thread[i]
	for _, is := range []bool{t.has, t.late, t.vain, s.global == uint8(i+1), s.localLock[node] == uint8(i+1)} {
		key <<= 1
		if is {
			key |= 1
		}
	}
	return key | uint32(t.pc)<<8 | uint32(t.life)<<16
}

// before orders states, so that canon can choose one of two equivalent states.
func (s *cohortState) before(other *cohortState) bool {
	if s.turn != other.turn {
		return s.turn < other.turn
	}
	for i := range s.thread {
		if mine, its := s.key(i, i/2), other.key(i, i/2); mine != its {
			return mine < its
		}
	}
	return false
}

// few makes the state space smaller. It replaces 1 in the field quiet by cohortQuiet-1, and 1 in the field passes by
// cohortPasses-1. The algorithm treats all values from 1 to these numbers alike.
func (cohortModel) few(t cohortTurn) cohortTurn {
	quiet, passes := t.quiet(), t.passes()
	if quiet == 1 {
		quiet = cohortQuiet - 1
	}
	if passes == 1 {
		passes = cohortPasses - 1
	}
	if t.node() < 0 || t == cohortContended {
		return t
	}
	return makeCohortTurn(t.node(), quiet, passes)
}

// others reports whether a thread has the local lock of the node that is not the given one.
func (m *cohortModel) others(s *cohortState, node int) bool { return s.localLock[1-node] != 0 }

func (m *cohortModel) yields(s *cohortState, node int) bool {
	t := s.turn
	switch {
	case t.node() < 0 || t.node() >= len(s.localLock):
		return false
	case t.node() == node:
		return m.bug != cohortNoBound && t.over() && m.others(s, node)
	default:
		return (m.bug == cohortNoBound || !t.over()) && (m.bug == cohortIgnoresLocalLock || s.localLock[t.node()] != 0)
	}
}

// time reports whether timeouts may pass in this model. In a model with one of the mistakes b, they may not.
func (m *cohortModel) time(b ...bug) bool {
	for _, b := range b {
		if m.bug == b {
			return false
		}
	}
	return !m.patient
}

// unresponsive reports whether a recent call of the given node may have let waiters of the other node go first in
// vain, because they did not take the lock.
func (m *cohortModel) unresponsive(s *cohortState, node int) bool {
	return m.time() && s.turn.node() == node && s.turn.over()
}

func (m *cohortModel) next(s *cohortState, emit func(model.Step[cohortState])) {
	for i, node := range m.nodes {
		if s.thread[i].life == cLives {
			m.step(s, i, node, emit)
		}
		me := uint8(i + 1)
		if s.thread[i].life == cLives && s.kills < m.kills {
			to := *s
			to.kills++
			to.thread[i].life = cDied
			emit(model.Step[cohortState]{To: to, By: m.name(i), Label: "is killed", Optional: true})
		}
		if s.thread[i].life == cLives && s.stops < m.stops && s.global != me && s.thread[i].pc != cIdle {
			to := *s
			to.stops++
			to.thread[i].life = cStopped
			emit(model.Step[cohortState]{To: to, By: m.name(i), Label: "is stopped", Optional: true})
		}
		if s.thread[i].life == cDied {
			if s.localLock[node] == me && m.bug != cohortNoReap {
				to := *s
				to.localLock[node] = 0
				emit(model.Step[cohortState]{To: to, By: "somebody", Label: "takes its local lock from " + m.name(i)})
			}
			if s.global == me {
				to := *s
				if to.global = 0; m.policy == PolicyReport {
					to.global = cohortLost
				}
				emit(model.Step[cohortState]{To: to, By: "somebody", Label: "takes the lock from " + m.name(i)})
			}
		}
	}
	if s.wild < m.wild {
		for _, t := range [...]cohortTurn{0, cohortContended, makeCohortTurn(0, 0, 0), makeCohortTurn(1, 1, cohortPasses), makeCohortTurn(7, 3, 9)} {
			to := *s
			to.wild++
			to.turn = t
			emit(model.Step[cohortState]{To: to, By: "a peer", Label: "writes a turn", Optional: true})
		}
	}
}

// step emits the possible next steps of a thread.
func (m *cohortModel) step(s *cohortState, i, node int, emit func(model.Step[cohortState])) {
	me, t := uint8(i+1), &s.thread[i]
	send := func(pc uint8, label string, optional bool, change func(s *cohortState, t *cohortThread)) {
		to := *s
		to.thread[i].pc = pc
		if change != nil {
			change(&to, &to.thread[i])
		}
		emit(model.Step[cohortState]{To: to, By: m.name(i), Label: label, Optional: optional})
	}
	take := func(s *cohortState, _ *cohortThread) {
		s.global = me
		m.count(s, node)
	}
	cancel := func() {
		if m.cancels && !t.late {
			send(t.pc, "its context ends", true, func(_ *cohortState, t *cohortThread) { t.late = true })
		}
	}
	switch t.pc {
	case cIdle:
		switch {
		case (s.turn == 0 || m.bug == cohortFastBarges) && s.global == 0:
			send(cTook, "takes it at once", true, take)
		case !m.yields(s, node):
			send(cTry, "need not yield", true, nil)
		default:
			send(cLocalLock, "goes to its local lock", true, nil)
			if m.unresponsive(s, node) {
				send(cTry, "has let them go first in vain", true, nil)
			}
		}
		if s.global == cohortLost {
			send(cIdle, "recovers it", true, func(s *cohortState, _ *cohortThread) { s.global = 0 })
		}
	case cTry:
		if s.global == 0 {
			send(cTook, "takes it", false, take)
		} else {
			send(cLocalLock, "goes to its local lock", false, nil)
		}
	case cLocalLock:
		switch {
		case s.localLock[node] == 0:
			send(cWay, "has its local lock", false, func(s *cohortState, t *cohortThread) { s.localLock[node], t.has = me, true })
		case t.late || m.time(cohortNoTimeout, cohortNoReap):
			send(cWay, "does without its local lock", false, nil)
		}
		m.turnWord(s, send, cLocalLock)
		cancel()
	case cWay:
		if y := m.yields(s, node); !y || m.time(cohortDefersAlways, cohortIgnoresLocalLock) {
			send(cLock, "goes to the lock", false, func(s *cohortState, t *cohortThread) {
				t.vain = y && s.turn.node() == node && s.global == 0
			})
		}
		cancel()
	case cLock:
		switch {
		case s.global == 0:
			send(cTook, "gets it", false, take)
		case s.global == cohortLost:
			send(cLeave, "is told", false, nil)
		case m.bug == cohortInherits && t.has && s.thread[s.global-1].pc == cHold && m.nodes[s.global-1] == node:
			send(cTook, "inherits it", false, take)
		case t.late:
			send(cLeave, "gives up", false, nil)
		}
		if m.yields(s, node) {
			send(cWay, "is woken, and lets others go first", true, nil)
		}
		m.turnWord(s, send, cLock)
		cancel()
	case cTook:
		pc := cHold
		if t.has {
			pc = cGive
		}
		anew := t.vain || s.turn.over() && !m.others(s, node) || m.bug == cohortAnew
		said := func(crowded bool) func(s *cohortState, _ *cohortThread) {
			return func(s *cohortState, _ *cohortThread) { s.turn = m.few(s.turn.after(node, crowded, anew)) }
		}
		if m.unresponsive(s, node) && !anew {
			send(pc, "begins a new turn, since others were let go first in vain", false,
				func(s *cohortState, _ *cohortThread) { s.turn = m.few(s.turn.after(node, true, true)) })
		}
		if s.turn == 0 {
			send(pc, "took it at once, or sees nobody", false, nil)
		}
		// The thread may see that another thread wants the lock. It may also miss a thread, for example one that
		// spins at its local lock.
		if m.crowded(s, i) {
			send(pc, "sees others", false, said(true))
		}
		if s.turn != 0 && (!m.others(s, node) || m.time()) {
			send(pc, "sees nobody, or those only who did not come", false, said(false))
		}
	case cGive:
		send(cHold, "gives its local lock back", false, func(s *cohortState, t *cohortThread) { s.localLock[node], t.has = 0, false })
	case cHold:
		send(cIdle, "unlocks", false, func(s *cohortState, t *cohortThread) {
			*t = cohortThread{}
			if s.global == me {
				s.global = 0
			}
		})
	case cLeave:
		send(cIdle, "leaves", false, func(s *cohortState, t *cohortThread) {
			if t.has && m.bug != cohortKeepsLocalLock {
				s.localLock[node] = 0
			}
			*t = cohortThread{}
		})
	}
}

// turnWord emits the change of turn that a waiter makes before it sleeps.
func (m *cohortModel) turnWord(s *cohortState, send func(uint8, string, bool, func(*cohortState, *cohortThread)), pc uint8) {
	if s.turn == 0 && s.global != 0 {
		send(pc, "stirs, and sleeps", true, func(s *cohortState, _ *cohortThread) { s.turn = cohortContended })
	}
}

// crowded reports whether another thread wants the global lock.
func (m *cohortModel) crowded(s *cohortState, me int) bool {
	for i := range m.nodes {
		if pc := s.thread[i].pc; i != me && (pc == cLocalLock || pc == cWay || pc == cLock) {
			return true
		}
	}
	return false
}

// count counts how many times in a row a node gets the lock. It counts only while the turn word says that many
// compete, and a thread of the other node waits for the lock.
func (m *cohortModel) count(s *cohortState, node int) {
	if !m.patient {
		return
	}
	waits := false
	for i, n := range m.nodes {
		t := &s.thread[i]
		waits = waits || n != node && t.has && (t.pc == cWay || t.pc == cLock)
	}
	if s.turn == 0 || s.turn.node() != node || !waits {
		s.run = 0
		return
	}
	s.run++
}

// cohortRunMost is how many times in a row a node may get the lock. In the model a turn has 2 passes instead of 64.
// Each of the 2 threads of a node may get the lock once more, if it decided to take the lock before the turn was over.
const cohortRunMost = 2 + 2

func (m *cohortModel) check(s *cohortState) error {
	in := 0
	for i, node := range m.nodes {
		t, me := &s.thread[i], uint8(i+1)
		if t.life != cDied && (t.pc == cTook || t.pc == cGive || t.pc == cHold) {
			in++
			if s.global != me {
				return errCohortTwo
			}
		}
		if s.localLock[node] == me && t.life != cDied && !t.has {
			return errCohortLocalLock
		}
	}
	switch {
	case in > 1:
		return errCohortTwo
	case m.patient && s.run > cohortRunMost:
		return errCohortRun
	}
	return nil
}

// done reports whether the calls of all threads have ended, and the dead threads have left nothing behind. The calls
// of dead and stopped threads need not have ended.
func (m *cohortModel) done(s *cohortState) bool {
	for i, node := range m.nodes {
		t, me := &s.thread[i], uint8(i+1)
		if t.life == cLives && t.pc != cIdle || t.life == cDied && (s.global == me || s.localLock[node] == me) {
			return false
		}
	}
	return true
}

func (m *cohortModel) name(i int) string { return cohortNames[i][m.nodes[i]] }

var cohortNames = func() (names [cohortThreads][2]string) {
	for i := range names {
		for node := range names[i] {
			names[i][node] = fmt.Sprintf("%c of node %d", 'P'+i, node)
		}
	}
	return names
}()

func (m *cohortModel) show(s *cohortState) string {
	return fmt.Sprintf("global %d, local locks %v, %v, threads %v, run %d", s.global, s.localLock, s.turn, s.thread[:len(m.nodes)], s.run)
}

// TestModelCohort checks that only one thread holds a CohortMutex and that each call ends, even when threads die or
// are stopped, and whatever a peer writes into the turn word. While a waiter of another node waits, one node gets the
// lock only a bounded number of times in a row.
func TestModelCohort(t *testing.T) {
	plain := cohortModel{nodes: []int{0, 0, 1}, cancels: true, wild: 1, policy: PolicyRelease}
	dying := cohortModel{nodes: []int{0, 0, 1}, kills: 1, policy: PolicyReport}
	stopping := cohortModel{nodes: []int{0, 0, 1}, kills: 1, stops: 1, policy: PolicyRelease}
	patient := cohortModel{nodes: []int{0, 0, 1}, patient: true, policy: PolicyRelease}
	crowd := cohortModel{nodes: []int{0, 0, 1, 1}, kills: 1, stops: 1, policy: PolicyReport}
	patientCrowd := cohortModel{nodes: []int{0, 0, 1, 1}, patient: true, policy: PolicyRelease}
	requireModels(t, []exploration{
		{"3, cancel", large, plain.explore, []bug{cohortKeepsLocalLock, cohortIgnoresLocalLock, cohortInherits}},
		{"3, death, PolicyReport", large, dying.explore, []bug{cohortKeepsLocalLock, cohortNoReap, cohortInherits}},
		{"3, death, stop", small, stopping.explore, []bug{cohortNoTimeout, cohortDefersAlways, cohortIgnoresLocalLock, cohortNoReap}},
		{"3, preference", small, patient.explore, []bug{cohortNoBound, cohortAnew, cohortFastBarges, cohortIgnoresLocalLock}},
		{"4, preference", large, patientCrowd.explore, []bug{cohortNoBound}},
		{"4, death, stop, PolicyReport", large, crowd.explore, []bug{cohortNoTimeout, cohortDefersAlways}},
	})
}

// TestModelCohortSymmetry checks that the search finds the same mistakes, after the same number of steps, whether it
// visits all states or leaves out equivalent ones.
func TestModelCohortSymmetry(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a run without -short: with it, the first exploration of each model runs")
	}
	requireSameAsDistinct(t, func(distinct bool) []func(bug) model.Result {
		all := []cohortModel{
			{nodes: []int{0, 0, 1}, kills: 1, policy: PolicyReport},
			{nodes: []int{0, 0, 1}, patient: true, policy: PolicyRelease},
			{nodes: []int{0, 0, 1, 1}, policy: PolicyRelease},
		}
		var explore []func(bug) model.Result
		for _, m := range all {
			m.distinct = distinct
			explore = append(explore, m.explore)
		}
		return explore
	}, []bug{"", cohortKeepsLocalLock, cohortNoTimeout, cohortDefersAlways, cohortIgnoresLocalLock, cohortNoBound, cohortNoReap, cohortInherits, cohortAnew, cohortFastBarges})
}
