package arenatest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/shm"
)

// never limits a wait for something that happens soon unless the program hangs.
const never = 2 * time.Minute

// held are the modes of holds that a program has to release before the end of the test.
var held = []string{
	arena.HoldExclusive, arena.HoldShared, arena.HoldUpgradable, arena.HoldClosing, arena.HoldRecovering,
	arena.HoldPermits, arena.HoldOwes, arena.HoldRunner, arena.HoldProducer, arena.HoldLease, arena.HoldClaim,
}

// end looks for leftovers at the end of the test, and then closes the participants and removes the arena.
func (w *World) end() {
	w.t.Helper()
	if w.t.Failed() {
		w.t.Logf("arenatest: the arena at the end of the test:\n%s", w.String())
	} else if err := w.leftovers(); err != nil {
		w.t.Errorf("arenatest: %v\nThe arena at the end of the test:\n%s", err, w.String())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.in {
		if p.killed && waits(p.a) {
			continue // a goroutine sleeps in this mapping, and will never wake
		}
		if err := p.a.Close(); err != nil && !closed(err) {
			w.t.Errorf("arenatest: close %q: %v", p.label, err)
		}
		if p.m != w.common {
			p.m.retire()
		}
	}
	if w.common != nil {
		w.common.retire()
	}
	if err := shm.Remove(w.name); err != nil {
		w.t.Errorf("arenatest: %v", err)
	}
	w.seg.Close()
}

// waits reports whether a goroutine of the participant a waits for an object.
func waits(a *arena.Arena) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = false // the arena was closed
		}
	}()
	for o := range a.Objects() {
		if slices.ContainsFunc(a.Inspect(o).Waits, func(x arena.Wait) bool { return x.Owner == a.Self() }) {
			return true
		}
	}
	return false
}

// leftovers returns an error that describes what the test should not have left behind.
func (w *World) leftovers() error {
	i, err := arena.Inspect(w.name)
	if err != nil {
		return err
	}
	defer i.Close()
	for end := time.Now().Add(never); beingReaped(i) && time.Now().Before(end); err = i.Refresh() {
		if err != nil {
			return err
		}
		<-time.After(time.Millisecond)
	}
	// An Inspector reads the bytes one after the other, and participants may change them meanwhile,
	// so try again.
	for range 5 {
		if err = i.Check(); err == nil {
			break
		}
		<-time.After(time.Millisecond)
		if err := i.Refresh(); err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("the arena is damaged: %w", err)
	}
	var left []string
	for _, o := range i.Objects() {
		is := i.Inspect(o.Object)
		for _, h := range is.Holds {
			if slices.Contains(held, h.Mode) && w.lives(h.Owner) {
				left = append(left, fmt.Sprintf("%q still has %v: %s", w.label(h.Owner), o.Object, holdText(h)))
			}
		}
		for _, x := range is.Waits {
			if w.lives(x.Owner) {
				left = append(left, fmt.Sprintf("a goroutine of %q still waits for %v: %s", w.label(x.Owner), o.Object, x.For))
			}
		}
	}
	if left != nil {
		return fmt.Errorf("the test left holds or waits behind:\n\t%s", strings.Join(left, "\n\t"))
	}
	return nil
}

// beingReaped reports whether a living participant is still reaping a dead one.
func beingReaped(i *arena.Inspector) bool {
	dead, alive := false, false
	for _, p := range i.Participants() {
		dead = dead || p.Life == arena.LifeDead
		alive = alive || p.Life == arena.LifeAlive
	}
	return dead && alive
}

// of returns the participant of this World whose ID is id. It returns nil if there is none.
func (w *World) of(id arena.ParticipantID) *participant {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.in {
		if p.a.Self() == id {
			return p
		}
	}
	return nil
}

// lives reports whether id is a participant of this World that was not killed. It is false for a
// participant of another process, because the World does not know whether that process lives.
func (w *World) lives(id arena.ParticipantID) bool {
	p := w.of(id)
	return p != nil && !p.killed
}

func (w *World) label(id arena.ParticipantID) string {
	if p := w.of(id); p != nil {
		return p.label
	}
	return id.String()
}

func holdText(h arena.Hold) string {
	s := h.Mode
	if h.Count > 1 {
		s += fmt.Sprintf(" (%d)", h.Count)
	}
	if h.Key != nil {
		s += fmt.Sprintf(", key %d", *h.Key)
	}
	if h.Note != "" {
		s += ", " + h.Note
	}
	return s
}

// String describes the arena, for the log of a test: its participants, its objects, and for each
// object the participants that hold it and those that wait for it.
func (w *World) String() string {
	i, err := arena.Inspect(w.name)
	if err != nil {
		return err.Error()
	}
	defer i.Close()
	return describe(i, w.label)
}

func describe(i *arena.Inspector, label func(arena.ParticipantID) string) string {
	var b strings.Builder
	for _, p := range i.Participants() {
		state := p.State
		if p.Life == arena.LifeDead {
			state = "dead, not reaped yet"
		}
		if p.Label != "" { // a slot without a label is about to become free
			fmt.Fprintf(&b, "\tparticipant %q: %s\n", p.Label, state)
		}
	}
	for _, o := range i.Objects() {
		is := i.Inspect(o.Object)
		fmt.Fprintf(&b, "\t%v: %s\n", o.Object, is.State)
		for _, h := range is.Holds {
			fmt.Fprintf(&b, "\t\t%q has it: %s\n", label(h.Owner), holdText(h))
		}
		for _, x := range is.Waits {
			fmt.Fprintf(&b, "\t\t%q waits for it: %s, %s\n", label(x.Owner), x.For, x.How)
		}
	}
	for _, d := range i.DeathRecords() {
		how := "died"
		if d.Left {
			how = "left"
		}
		fmt.Fprintf(&b, "\t%q %s\n", d.Label, how)
	}
	return b.String()
}
