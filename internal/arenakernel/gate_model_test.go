//go:build linux

package arenakernel

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/shmsync/shmsync/internal/model"
	"github.com/shmsync/shmsync/internal/proctest"
)

// This file is the model of the gate. Two or three processes join, leave and die, and one more
// process may remove the arena. One of the processes may be stopped for ever before any of its
// steps.

const gateProcs = 3

// A gateProc is a process of the model, together with its slot.
type gateProc struct {
	pc, i, lives uint8 // i is the slot that the process examines
	slot, adm    uint8 // slot: 0 free, 1 joining, 2 live; adm: the admission word
	dead         bool  // its byte lock is free
	w            epochWord8
}

// epochWord8 is an [epochWord] with smaller fields.
type epochWord8 struct{ phase, number, claimant uint8 }

type gateState struct {
	p        [gateProcs]gateProc
	epoch    epochWord8
	gate     uint8 // 1 plus the process that has the gate
	kills    uint8
	unlinked bool
}

// gateModel is the model of admit and claimEpoch, or a version with a mistake.
type gateModel struct {
	remover bool  // the last process removes the arena
	stopped uint8 // the process that may stop for ever
	lives   uint8 // how many times each process joins
	kills   uint8

	refusesNobody, keepsReading, decidesByStore bool
	endsNoClaim, visitsFirst                    bool
}

var (
	errTwoIn      = errors.New("a participant is in beside the first of an epoch")
	errInRemoved  = errors.New("a participant is in a removed arena")
	errTwoClaimed = errors.New("two processes have the gate")
)

const (
	gpOut = iota
	gpClear
	gpLive
	gpReset
	gpRead
	gpLook
	gpEnd
	gpIn
	gpLock
	gpLockedRead
	gpLockedLook
	gpClaim
	gpRefuse
	gpVisit
	gpGiveUp
	gpUnlockRetry
	gpDecide
	gpFirst
	gpAdmit
	gpOpen
	gpUnlockIn
	gpDone
	gpUnlink
	gpMark
	gpUnlockDone
)

// isIn is presenceOf, called for process k by another process.
func (m gateModel) isIn(s *gateState, k uint8) bool {
	p := s.p[k]
	return !p.dead && p.adm == admissionIn && p.slot == 2
}

func (m gateModel) step(s *gateState, k uint8) (label string) {
	p := &s.p[k]
	remover := m.remover && k == gateProcs-1
	nextSlot := func(found, last uint8) {
		p.i++
		if p.i == k {
			p.i++
		}
		if p.i >= gateProcs {
			p.pc = last
		} else if found != p.pc {
			p.pc = found
		}
	}
	start := func(pc uint8) {
		p.pc, p.i = pc, 0
		if k == 0 {
			p.i = 1
		}
	}
	claim := func(w epochWord8) epochWord8 {
		n := w.number
		if w.phase == uint8(epochOpen) || n == 0 {
			n++
		}
		return epochWord8{uint8(epochClaiming), n, k}
	}
	end := func(w epochWord8) epochWord8 {
		if w.number <= 1 {
			return epochWord8{}
		}
		return epochWord8{phase: uint8(epochOpen), number: w.number - 1}
	}
	cas := func(from, to epochWord8) bool {
		if s.epoch == from {
			s.epoch = to
			return true
		}
		return false
	}
	over := func() { // the process leaves; a real process then opens the arena by its name again
		p.pc, p.slot = gpDone, 0
	}
	switch p.pc {
	case gpOut:
		if remover {
			p.pc = gpLock
			return "begins to remove"
		}
		p.slot, p.dead, p.pc = 1, false, gpClear // the admission word still belongs to the previous participant
		p.lives--
		return "takes its slot"
	case gpClear:
		p.adm, p.pc = admissionPending, gpLive
		return "stores pending"
	case gpLive:
		p.slot, p.pc = 2, gpReset
		return "is live"
	case gpReset:
		if p.adm == admissionRefused {
			p.adm = admissionPending
		}
		p.pc = gpRead
		if m.keepsReading && p.w != (epochWord8{}) {
			start(gpLook)
		}
		return "is pending"
	case gpRead:
		p.w = s.epoch
		switch epochPhase(p.w.phase) {
		case epochRemoved:
			over()
		case epochClaimed:
			p.pc = gpLock
		default:
			start(gpLook)
		}
		return "reads the epoch"
	case gpLook:
		if m.isIn(s, p.i) {
			p.pc = gpEnd
			return "finds one that is in"
		}
		nextSlot(gpLook, gpLock)
		return "looks"
	case gpEnd:
		switch {
		case p.w.phase != uint8(epochClaiming):
			p.pc = gpIn
		case m.endsNoClaim:
			p.pc = gpReset
		case cas(p.w, end(p.w)):
			p.pc = gpIn
		default:
			p.pc = gpReset
		}
		return "ends the claim, if there is one"
	case gpIn:
		if p.adm == admissionPending {
			p.adm, p.pc, p.w = admissionIn, gpDone, epochWord8{}
			if s.unlinked { // the process finds that the file has lost its name
				over()
			}
		} else {
			p.pc = gpReset
		}
		return "comes in"
	case gpLock:
		if s.gate != 0 {
			p.pc = gpReset
			if remover {
				p.pc = gpDone
			}
			return "finds the gate taken"
		}
		s.gate, p.pc = k+1, gpLockedRead
		return "takes the gate"
	case gpLockedRead:
		p.w = s.epoch
		switch {
		case p.w.phase == uint8(epochRemoved), s.unlinked:
			p.pc = gpUnlockDone
		case p.w.phase == uint8(epochClaimed):
			start(gpClaim)
		default:
			start(gpLockedLook)
		}
		return "reads the epoch and the name"
	case gpLockedLook:
		if m.isIn(s, p.i) {
			p.pc = gpUnlockRetry
			return "finds one that is in"
		}
		nextSlot(gpLockedLook, gpClaim)
		if p.pc == gpClaim {
			start(gpClaim)
		}
		return "looks again"
	case gpClaim:
		if m.visitsFirst {
			start(gpRefuse)
			return "does not claim yet"
		}
		if !cas(p.w, claim(p.w)) {
			p.pc = gpUnlockRetry
			return "cannot claim"
		}
		p.w = s.epoch
		start(gpRefuse)
		return "claims"
	case gpRefuse:
		if q := &s.p[p.i]; q.slot == 2 && q.adm == admissionPending && !m.refusesNobody {
			q.adm = admissionRefused
		}
		p.pc = gpVisit
		return "refuses"
	case gpVisit:
		if m.isIn(s, p.i) {
			p.pc = gpGiveUp
			return "visits one that is in"
		}
		nextSlot(gpRefuse, gpDecide)
		return "visits"
	case gpGiveUp:
		cas(p.w, end(p.w))
		p.pc = gpUnlockRetry
		return "gives the claim up"
	case gpUnlockRetry:
		s.gate, p.pc = 0, gpReset
		if remover {
			p.pc = gpDone
		}
		return "gives the gate back"
	case gpDecide:
		if m.visitsFirst && cas(p.w, claim(p.w)) {
			p.w = s.epoch
		}
		claimed := epochWord8{uint8(epochClaimed), p.w.number, k}
		switch {
		case m.decidesByStore:
			s.epoch = claimed
		case !cas(p.w, claimed):
			p.pc = gpUnlockRetry
			return "finds its claim ended"
		}
		p.w, p.pc = claimed, gpFirst
		if remover {
			p.pc = gpUnlink
		}
		return "is alone"
	case gpFirst:
		p.pc = gpAdmit
		return "runs OnFirst"
	case gpAdmit:
		p.adm, p.pc = admissionIn, gpOpen
		return "comes in"
	case gpOpen:
		s.epoch = epochWord8{phase: uint8(epochOpen), number: p.w.number}
		p.pc, p.w = gpUnlockIn, epochWord8{}
		return "opens the epoch"
	case gpUnlockIn:
		s.gate, p.pc = 0, gpDone
		return "gives the gate back"
	case gpUnlink:
		s.unlinked, p.pc = true, gpMark
		return "unlinks"
	case gpMark:
		s.epoch.phase, p.pc = uint8(epochRemoved), gpUnlockDone
		return "says that it is removed"
	case gpUnlockDone:
		s.gate = 0
		over()
		return "gives the gate back, and starts over"
	}
	return ""
}

func (m gateModel) explore() model.Result {
	init := gateState{kills: m.kills}
	for k := range init.p {
		init.p[k].lives = m.lives
	}
	spec := model.Spec[gateState]{
		Init: []gateState{init},
		Next: func(s *gateState, emit func(model.Step[gateState])) {
			for k := range uint8(gateProcs) {
				name := fmt.Sprint("process ", k)
				p := s.p[k]
				switch {
				case p.pc == gpOut && p.lives == 0:
				case p.pc == gpDone:
					to := *s // the process leaves
					to.p[k].slot, to.p[k].pc, to.p[k].w = 0, gpOut, epochWord8{}
					if !s.unlinked && !(m.remover && k == gateProcs-1) {
						emit(model.Step[gateState]{To: to, Label: "leaves", By: name, Optional: true})
					}
				default:
					to := *s
					label := m.step(&to, k)
					emit(model.Step[gateState]{To: to, Label: label, By: name, Optional: p.pc == gpOut || k == m.stopped})
				}
				if s.kills > 0 && p.pc != gpOut {
					to := *s
					to.kills--
					q := &to.p[k]
					q.dead, q.pc, q.w, q.i = true, gpOut, epochWord8{}, 0
					if to.gate == k+1 {
						to.gate = 0
					}
					emit(model.Step[gateState]{To: to, Label: "dies", By: name, Optional: true})
				}
			}
		},
		Check: func(s *gateState) error {
			for k := range uint8(gateProcs) {
				in := !s.p[k].dead && s.p[k].slot == 2 && s.p[k].adm == admissionIn
				switch {
				case in && s.epoch.phase == uint8(epochClaimed) && (s.epoch.claimant != k || s.p[k].pc != gpOpen):
					return errTwoIn
				case in && s.unlinked:
					return errInRemoved
				}
				for j := range k {
					if pc, other := s.p[k].pc, s.p[j].pc; pc >= gpLockedRead && pc <= gpUnlockIn && other >= gpLockedRead && other <= gpUnlockIn && s.gate == 0 {
						return errTwoClaimed
					}
				}
			}
			return nil
		},
		// Every process that is not stopped is admitted, unless the stopped process has the gate
		// and no participant is in the arena.
		Done: func(s *gateState) bool {
			done, in := true, false
			for k := range uint8(gateProcs) {
				in = in || k != m.stopped && m.isIn(s, k)
				if k != m.stopped && s.p[k].pc != gpOut && s.p[k].pc != gpDone {
					done = false
				}
			}
			return done || !in && s.gate == m.stopped+1
		},
		Show: func(s *gateState) string { return fmt.Sprintf("%+v", *s) },
	}
	return spec.Explore()
}

// TestModelGate: in every order of steps, deaths and stops, the first participant of an epoch is
// alone while it runs OnFirst, and no participant is admitted to a removed arena. While a
// participant is in the arena, no joiner waits for a stopped process.
func TestModelGate(t *testing.T) {
	for _, m := range []gateModel{{lives: 1, kills: 2}, {lives: 1, kills: 2, remover: true}, {lives: 2, remover: true}, {lives: 2}} {
		if m.lives == 2 && !m.remover && !proctest.Long() {
			continue // this model has seven million states
		}
		r := m.explore()
		t.Logf("remover %v: %d states, %d steps", m.remover, r.States, r.Steps)
		if r.Violation != nil {
			t.Fatal(r.Violation)
		}
	}
	for what, c := range map[string]struct {
		m    gateModel
		want error
	}{
		"refuses nobody":                {gateModel{refusesNobody: true}, errTwoIn},
		"does not read the epoch again": {gateModel{keepsReading: true}, errTwoIn},
		"decides by a store":            {gateModel{decidesByStore: true}, errTwoIn},
		"visits before it claims":       {gateModel{visitsFirst: true}, errTwoIn},
		"waits for a claimant":          {gateModel{endsNoClaim: true}, model.ErrEndless},
	} {
		if c.m.lives = 2; c.m.endsNoClaim && !proctest.Long() {
			continue // only a visit of all states shows whether the model gets stuck
		}
		r := c.m.explore()
		if r.Violation == nil {
			t.Errorf("%s: not found in %d states", what, r.States)
			continue
		}
		t.Logf("%s: %v", what, r.Violation.Err)
		assert.ErrorIs(t, r.Violation, c.want, what)
	}
}
