package model

import (
	"errors"
	"fmt"
	"strings"
)

// Spec describes a system by its states and steps. Explore visits the states breadth first, so the trace of a
// violation is one of the shortest.
type Spec[S comparable] struct {
	Init []S
	// Next calls emit for each step that is possible in s.
	Next func(s *S, emit func(Step[S]))
	// Check returns an error if s is a state that a correct system cannot reach.
	Check func(s *S) error
	// Done reports whether everything that has to happen has happened in s.
	Done func(s *S) bool
	// Show renders a state for a trace.
	Show func(s *S) string
	// Limit is the maximum number of states to visit; 0 means 1<<24.
	Limit int
}

// Step is one step from a state.
type Step[S comparable] struct {
	To       S
	Label    string // what the step does, for a trace
	By       string // the thread that does it
	Optional bool   // a step of the environment, which need not happen
}

// Result is what an exploration found.
type Result struct {
	States int
	Steps  int
	// Violation says what is wrong; it is nil if the system is correct.
	Violation *Violation
}

// Violation says what is wrong with a system, and which steps lead there.
type Violation struct {
	Err   error
	Trace []string
}

func (v *Violation) Error() string {
	return v.Err.Error() + "\n  " + strings.Join(v.Trace, "\n  ")
}

func (v *Violation) Unwrap() error { return v.Err }

// The violations that Explore can find in addition to the errors of Check.
var (
	// ErrStuck means that something remains to be done, but no step is possible.
	ErrStuck = errors.New("nobody can go on")
	// ErrEndless means that steps can be taken for ever, but no sequence of mandatory steps leads to a done state.
	ErrEndless = errors.New("the end cannot be reached any more")
	// ErrTooMany means that there are more states than the limit.
	ErrTooMany = errors.New("too many states")
)

// Explore visits all states of the system until it finds a violation.
func (spec *Spec[S]) Explore() Result {
	e := &exploration[S]{spec: spec, table: newTable[S]()}
	limit := spec.Limit
	if limit == 0 {
		limit = 1 << 24
	}
	for i := range spec.Init {
		e.add(spec.Init[i], none)
	}
	for at := 0; at < e.table.len(); at++ {
		if err := e.expand(uint32(at)); err != nil {
			return e.result(err, uint32(at))
		}
		if e.table.len() > limit {
			return e.result(fmt.Errorf("%w: more than %d", ErrTooMany, limit), uint32(at))
		}
	}
	if at, ok := e.endless(); ok {
		return e.result(ErrEndless, at)
	}
	return Result{States: e.table.len(), Steps: e.steps}
}

// exploration is the state of an exploration. States are numbered in the order in which they were
// found.
type exploration[S comparable] struct {
	spec  *Spec[S]
	table *table[S]
	steps int

	parent []uint32 // by state
	done   []bool   // by state
	// The mandatory steps, ordered by the states in which they begin.
	first []uint64 // by state: the index of its first step in e.to
	to    []uint32 // by step: the state to which the step leads
}

// none is the parent of a state in which an exploration begins.
const none = ^uint32(0)

func (e *exploration[S]) add(s S, from uint32) uint32 {
	i, fresh := e.table.insert(&s)
	if fresh {
		e.parent = append(e.parent, from)
	}
	return i
}

// expand finds the states that follow a state. The parameter at is the number of that state.
func (e *exploration[S]) expand(at uint32) error {
	s := *e.table.at(at)
	if err := e.spec.Check(&s); err != nil {
		return err
	}
	done := e.spec.Done(&s)
	e.done = append(e.done, done)
	e.first = append(e.first, uint64(len(e.to)))
	begin := len(e.to)
	e.spec.Next(&s, func(step Step[S]) {
		e.steps++
		if i := e.add(step.To, at); !step.Optional {
			e.to = append(e.to, i)
		}
	})
	if !done && len(e.to) == begin {
		return ErrStuck
	}
	return nil
}

// endless looks for states from which no sequence of mandatory steps reaches a done state. It
// returns the first such state.
func (e *exploration[S]) endless() (at uint32, found bool) {
	n := e.table.len()
	e.first = append(e.first, uint64(len(e.to)))
	// Make a list of the steps by the states in which they end.
	start := make([]uint64, n+1)
	for _, t := range e.to {
		start[t+1]++
	}
	for i := range n {
		start[i+1] += start[i]
	}
	from := make([]uint32, len(e.to))
	fill := append([]uint64(nil), start[:n]...)
	for i := range n {
		for _, t := range e.to[e.first[i]:e.first[i+1]] {
			from[fill[t]] = uint32(i)
			fill[t]++
		}
	}
	// Then walk back from the done states.
	reached := make([]bool, n)
	var work []uint32
	for i, done := range e.done {
		if done {
			reached[i] = true
			work = append(work, uint32(i))
		}
	}
	for len(work) > 0 {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		for _, f := range from[start[i]:start[i+1]] {
			if !reached[f] {
				reached[f] = true
				work = append(work, f)
			}
		}
	}
	for i, ok := range reached {
		if !ok {
			return uint32(i), true
		}
	}
	return 0, false
}

// result returns the Result of an exploration that ended with err. The parameter at is the number of the last state.
func (e *exploration[S]) result(err error, at uint32) Result {
	return Result{States: e.table.len(), Steps: e.steps, Violation: &Violation{Err: err, Trace: e.trace(at)}}
}

// trace returns, as text, the steps from the first state to the state with the number at.
func (e *exploration[S]) trace(at uint32) (lines []string) {
	var path []uint32
	for i := at; i != none; i = e.parent[i] {
		path = append(path, i)
	}
	for k := len(path) - 1; k >= 0; k-- {
		s := e.table.at(path[k])
		what := "initially"
		if k < len(path)-1 {
			what = e.label(path[k+1], s)
		}
		if e.spec.Show != nil {
			what = fmt.Sprintf("%-46s %s", what, e.spec.Show(s))
		}
		lines = append(lines, what)
	}
	return lines
}

// label returns the label of the step from the state with the number at to the state s.
func (e *exploration[S]) label(at uint32, s *S) (what string) {
	e.spec.Next(e.table.at(at), func(step Step[S]) {
		if step.To == *s && what == "" {
			what = step.By + ": " + step.Label
		}
	})
	return what
}
