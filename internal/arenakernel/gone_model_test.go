//go:build linux

package arenakernel

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/model"
	"github.com/shmsync/shmsync/internal/race"
)

// This file is the model of the two stages of a death: first a process is dead, then it is gone. A process
// locks a Mutex. Then it makes a system call in which the kernel writes into the data that the Mutex guards.
// The process may die during this system call. Other processes recover the Mutex, and join in the slots of dead
// processes. One process may be stopped for ever before any of its steps, and one system call may last for
// ever.

const goneProcs = 3

// What the owner word can say about the Mutex.
const (
	gmFree uint8 = iota
	gmHeld
	gmOwnerDead
	gmRecovering
)

// The states of a process for the kernel: the process runs, or the kernel is ending it after a kill.
const (
	gkRuns uint8 = iota
	gkKilled
	gkDetached // none of its threads has the memory of the process
	gkEnded    // its byte lock is free
)

// A goneProc is a slot and the process in it.
type goneProc struct {
	pc       uint8
	of, word uint8 // what the process has read in the owner word: the owner, and what the word says of the Mutex
	before   uint8 // the field gone of another slot, as the process has read it before it checks that slot
	named    uint8 // the field ident of that slot, as the process has read it
	locks    uint8 // how many more times the process calls Lock
	lives    uint8 // how many more processes may join in this slot

	gen    uint8 // the generation in the slot; 0: never taken
	dead   bool  // the slot's phase is dead
	free   bool  // the slot's phase is free
	gone   uint8 // slotGone: the generation that was found gone
	ident  uint8 // the generation whose process the slot identifies; 0: no process
	byteOf uint8 // 0: the byte lock is free; 1: the participant in the slot has it; 2: a joiner has it

	kernel uint8
	call   bool // a system call of this process is in progress, and writes into the data
}

type goneState struct {
	p        [goneProcs]goneProc
	word, by uint8 // the owner word: what it says of the Mutex, and the participant that it names
	kills    uint8
}

// goneModel is the model of Arena.Gone and of the recovery of a Mutex. Each field from asksNobody on plants a
// mistake in the model.
type goneModel struct {
	release bool  // PolicyRelease
	async   bool  // the participants declare KernelIOAsynchronous
	stopped uint8 // 1 plus the slot whose process may stop for ever; 0: no process may stop
	stuck   bool  // a system call of process 0 may last for ever

	asksNobody, takesFirst, freesEarly, joinsUnnoted bool
	anyGeneration, looksAtThreads                    bool
}

const (
	gnOut uint8 = iota
	gnNote
	gnNoteByte
	gnNoteWrite
	gnTakeByte
	gnTake
	gnFill
	gnIdent
	gnIn
	gnRead
	gnAsk
	gnFound
	gnByte
	gnBefore
	gnIdentity
	gnLook
	gnCheck
	gnRecord
	gnAct
	gnHeld
	gnReturn
	gnUnlock
)

var errTwoWriters = errors.New("the kernel writes for one process into data that another one was given")

// participant returns the ID of generation gen of slot k.
func (goneModel) participant(k, gen uint8) uint8 { return 1 + k + goneProcs*(gen-1) }

// step does one step of the process in slot k. It returns false if the process has no step to do.
func (m goneModel) step(s *goneState, k uint8) (label string, ok bool) {
	p := &s.p[k]
	q := &s.p[(max(p.of, 1)-1)%goneProcs] // the slot of participant p.of
	gen := (max(p.of, 1)-1)/goneProcs + 1
	me := m.participant(k, p.gen)
	unless := func(ok bool, pc, otherwise uint8) {
		if p.pc = pc; !ok {
			p.pc = otherwise
		}
	}
	answer := func(gone bool, otherwise uint8) { unless(!gone, otherwise, gnAct) }
	switch p.pc {
	case gnOut:
		if p.lives == 0 || p.gen != 0 && !p.free && !p.dead {
			return "", false
		}
		unless(p.dead && !m.joinsUnnoted, gnNote, gnTakeByte)
		return "wants the slot", true
	case gnNote:
		p.before, p.pc = p.gone, gnNoteByte
		return "reads the record", true
	case gnNoteByte:
		unless(p.byteOf == 0, gnNoteWrite, gnOut)
		return "asks for the byte lock of the dead", true
	case gnNoteWrite:
		unless(p.gone == p.before && p.dead, gnTakeByte, gnOut)
		if p.pc == gnTakeByte {
			p.gone = p.gen
		}
		return "records that the dead one is gone", true
	case gnTakeByte:
		unless(p.byteOf == 0, gnTake, gnOut)
		if p.pc == gnTake {
			p.byteOf = 2
		}
		return "takes the byte lock", true
	case gnTake:
		p.gen, p.dead, p.free, p.kernel, p.byteOf, p.pc = p.gen+1, false, false, gkRuns, 1, gnFill
		p.lives--
		return "takes the slot", true
	case gnFill:
		p.gone, p.ident, p.pc = 0, 0, gnIdent
		return "clears the slot", true
	case gnIdent:
		p.ident, p.locks, p.pc = p.gen, 1, gnIn
		return "writes its identity", true
	case gnIn:
		if p.locks == 0 {
			return "", false
		}
		p.locks--
		p.pc = gnRead
		return "calls Lock", true
	case gnRead:
		return m.read(s, p, me)
	case gnAsk:
		if p.pc = gnFound; q.gen != gen || q.free || m.asksNobody {
			p.pc = gnAct
		}
		return "looks at the slot of the dead", true
	case gnFound:
		answer(q.gone == gen || m.anyGeneration && q.gone != 0, gnByte)
		return "looks at the record", true
	case gnByte:
		next := gnBefore
		if m.async && !m.looksAtThreads {
			next = gnRead
		}
		answer(q.byteOf == 0, next)
		return "asks for the byte lock", true
	case gnBefore:
		p.before, p.pc = q.gone, gnIdentity
		return "reads the record once more", true
	case gnIdentity:
		p.named = q.ident
		unless(q.ident != 0, gnLook, gnRead)
		return "reads the identity", true
	case gnLook:
		// If p.named is less than q.gen, the slot still identifies an earlier participant. The process of that
		// participant has ended: before its end, no other process could join in the slot.
		unless(p.named < q.gen || q.kernel >= gkDetached, gnCheck, gnRead)
		return "looks at the threads", true
	case gnCheck:
		unless(q.gen == gen && q.dead, gnRecord, gnRead)
		return "looks whether the slot has changed", true
	case gnRecord:
		if p.pc = gnAct; q.gone == p.before {
			q.gone = gen
		}
		return "records what it found", true
	case gnAct:
		return m.act(s, p, me), true
	case gnHeld:
		p.call, p.pc = true, gnReturn
		return "begins a system call", true
	case gnReturn:
		p.call, p.pc = false, gnUnlock
		return "returns from the system call", true
	case gnUnlock:
		s.word, s.by, p.pc = gmFree, 0, gnIn
		return "unlocks", true
	}
	return "", false
}

// read is the step of Lock that reads the owner word, and selects the next step.
func (m goneModel) read(s *goneState, p *goneProc, me uint8) (label string, ok bool) {
	if s.word == gmFree {
		s.word, s.by, p.pc = gmHeld, me, gnHeld
		return "locks", true
	}
	if m.takesFirst && s.by == me {
		p.pc = gnAsk
		return "asks again", true
	}
	n, gen := &s.p[(s.by-1)%goneProcs], (s.by-1)/goneProcs+1
	switch current := n.gen == gen && !n.free && !n.dead; {
	case current && n.kernel == gkRuns:
		return "", false // it waits
	case current:
		n.dead = true
		return "marks the dead one", true
	case s.word == gmRecovering, s.word == gmHeld && !m.release:
		s.word = gmOwnerDead
		return "says that the owner is dead", true
	}
	p.of, p.word, p.pc = s.by, s.word, gnAsk
	if m.takesFirst && s.word == gmOwnerDead {
		s.word, s.by = gmRecovering, me
	}
	return "asks whether the dead one is gone", true
}

// act is the step of Lock that follows when the participant p.of is gone.
func (m goneModel) act(s *goneState, p *goneProc, me uint8) string {
	switch of, word := p.of, p.word; {
	case m.takesFirst && s.word == gmRecovering && s.by == me:
		p.pc = gnHeld
	case s.by != of || s.word != word:
		p.pc = gnRead
	case word == gmHeld:
		s.word, s.by, p.pc = gmFree, 0, gnRead
	default:
		s.word, s.by, p.pc = gmRecovering, me, gnHeld
	}
	p.of, p.word, p.before, p.named = 0, 0, 0, 0
	return "takes what the dead one left"
}

// kernelStep does the kernel's next step for the process in slot k, which has died.
func (m goneModel) kernelStep(p *goneProc) string {
	p.kernel++
	if p.kernel == gkEnded {
		p.byteOf, p.call = 0, false
		return "drops the byte lock"
	}
	if !m.async {
		p.call = false
	}
	return "ends the last thread"
}

func (m goneModel) next(s *goneState, emit func(model.Step[goneState])) {
	for k := range uint8(goneProcs) {
		name, p := fmt.Sprint("process ", k), s.p[k]
		if p.kernel == gkRuns || p.pc >= gnNote && p.pc <= gnTake || p.pc == gnOut && p.kernel == gkEnded {
			to := *s
			if label, ok := m.step(&to, k); ok {
				optional := p.pc == gnOut || p.pc == gnIn || k+1 == m.stopped
				emit(model.Step[goneState]{To: to, Label: label, By: name, Optional: optional})
			}
		}
		if p.kernel == gkKilled || p.kernel == gkDetached {
			to := *s
			label := m.kernelStep(&to.p[k])
			emit(model.Step[goneState]{To: to, Label: label, By: "kernel of " + name, Optional: m.stuck && k == 0 && p.call})
		}
		if p.dead && (p.byteOf == 0 || m.freesEarly) && !p.free {
			to := *s
			to.p[k].dead, to.p[k].free = false, true
			emit(model.Step[goneState]{To: to, Label: "frees the slot of " + name, By: "reaper", Optional: true})
		}
		if s.kills > 0 && p.pc != gnOut {
			emit(model.Step[goneState]{To: m.kill(*s, k), Label: "is killed", By: name, Optional: true})
		}
	}
}

// kill returns the state after the death of the process in slot k. If this process is a joiner that has not taken the
// slot yet, its death frees only the byte lock.
func (m goneModel) kill(s goneState, k uint8) goneState {
	s.kills--
	p := &s.p[k]
	if p.pc <= gnTake {
		if p.byteOf == 2 {
			p.byteOf = 0
		}
	} else {
		p.kernel = gkKilled
	}
	p.pc, p.of, p.word, p.before, p.named, p.locks = gnOut, 0, 0, 0, 0, 0
	return s
}

// done reports whether every process that waits in Lock waits for a stopped participant, or for one
// whose system call is still in progress.
func (m goneModel) done(s *goneState) bool {
	if s.word != gmFree {
		k := (s.by - 1) % goneProcs
		n, of := &s.p[k], s.by == m.participant(k, s.p[k].gen)
		if of && (k+1 == m.stopped && n.kernel == gkRuns || m.stuck && k == 0 && n.kernel != gkRuns && n.call) {
			return true
		}
	}
	for k := range uint8(goneProcs) {
		if p := &s.p[k]; k+1 != m.stopped && p.pc > gnIn {
			return false
		}
	}
	return true
}

func (m goneModel) explore() model.Result {
	init := goneState{kills: 2}
	for k := range init.p {
		init.p[k] = goneProc{pc: gnIn, locks: 1, gen: 1, ident: 1, byteOf: 1}
	}
	init.p[0].lives = 1
	spec := model.Spec[goneState]{
		Init: []goneState{init},
		Next: m.next,
		Check: func(s *goneState) error {
			for k := range s.p {
				for j := range s.p {
					if pc := s.p[k].pc; j != k && s.p[j].call && (pc == gnHeld || pc == gnReturn) {
						return errTwoWriters
					}
				}
			}
			return nil
		},
		Done: m.done,
		Show: func(s *goneState) string { return fmt.Sprintf("%+v", *s) },
	}
	return spec.Explore()
}

// TestModelGone checks that a Mutex passes to another process only after the system calls of its last owner have
// ended. It also checks that no process waits for a stopped process that does not own the Mutex, and that no process
// waits for the system call of a process that never owned it.
func TestModelGone(t *testing.T) {
	if race.Enabled {
		t.Skip("needs a build without the race detector: a single goroutine explores the model, ten times as slowly with it")
	}
	for _, m := range []goneModel{
		{}, {release: true}, {async: true}, {async: true, release: true},
		{stopped: 1}, {stopped: 1, async: true}, {stopped: 2, release: true}, {stuck: true}, {stuck: true, release: true, async: true},
	} {
		if m != (goneModel{}) && testing.Short() {
			break
		}
		r := m.explore()
		t.Logf("%+v: %d states, %d steps", m, r.States, r.Steps)
		if r.Violation != nil {
			t.Fatal(r.Violation)
		}
	}
	for what, c := range map[string]struct {
		m    goneModel
		want error
	}{
		"asks nobody":                       {goneModel{asksNobody: true}, errTwoWriters},
		"passes a hold on, and asks nobody": {goneModel{asksNobody: true, release: true}, errTwoWriters},
		"takes the word first":              {goneModel{takesFirst: true}, errTwoWriters},
		"frees the slot of one not gone":    {goneModel{freesEarly: true}, errTwoWriters},
		"takes any record":                  {goneModel{anyGeneration: true}, errTwoWriters},
		"looks at the threads only":         {goneModel{looksAtThreads: true, async: true}, errTwoWriters},
		"takes a byte lock without a word":  {goneModel{joinsUnnoted: true, async: true, stopped: 1}, model.ErrEndless},
	} {
		r := c.m.explore()
		require.NotNil(t, r.Violation, "%s: not found in %d states", what, r.States)
		t.Logf("%s: after %d steps, %d states explored", what, len(r.Violation.Trace)-1, r.States)
		require.ErrorIs(t, r.Violation, c.want, what)
	}
}
