//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// A subject is one implementation that cells measure. It names the scenarios
// it takes part in; a worker opens it once per thread and the value it gets
// implements what the scenario asks for.
type subject struct {
	By        string   // who made it: c, go, in-process or shmsync
	Prim      string   // what it is
	Scenarios []string // names of scenarios
	Brief     []string // those that a quick suite looks at; all when nil
	Places    []string // placements it makes sense in; all when empty
	InProcess bool     // cannot span processes: its cells run in one
	C         bool     // the C helper runs it
	Hidden    bool     // runs only when named, for tests
	Spins     bool     // how long its waiters spin can be set
	MaxN      int      // the most waiters that it can take; 0 for any number
	Env       []string // added to the environment of its workers

	// Segment makes what the subject lives in during a repetition of the cell,
	// a mappable file that workers inherit as descriptor 4; a zeroed memfd when
	// nil.
	Segment func(*cell) (*os.File, error)
	// Files makes the descriptors that every worker of a cell inherits.
	Files func(*cell) ([]*os.File, error)
	// Clean takes away what a repetition left beside its files.
	Clean func(segment *os.File)
	// Check says why the subject cannot run here; nil where it can.
	Check func() error
	// Open gives thread's view of the subject: a pairer, token, locker, heir
	// or crowd. Process 0 opens all its threads before any other opens one.
	Open func(w *worker, thread int) (any, error)
}

// Name is how the subject is selected and shown, as in c:futex.
func (s *subject) Name() string { return s.By + ":" + s.Prim }

// plainVariant is what a subject is called whose name has no dash.
const plainVariant = "plain"

// variant is what follows the first dash of what the subject is.
func (s *subject) variant() string {
	if _, v, ok := strings.Cut(s.Prim, "-"); ok {
		return v
	}
	return plainVariant
}

// locker is what lock and crash cells need.
type locker interface {
	Lock()
	Unlock()
}

// pairer takes and releases a lock n times, counting under it: a loop of the
// subject's own, so that calls may be inlined as in a user's program.
type pairer interface {
	Pairs(n int, counter *uint64)
}

// token is one end of a two-way channel of values. Await returns the value
// that the other end passed last; values are passed in turn.
type token interface {
	Pass(v uint32)
	Await() uint32
}

// heir is a locker that has more to do than Lock to become owner after a
// death. Inherit returns when the caller owns the lock, and the instant from
// which it has.
type heir interface {
	locker
	Inherit() (owned int64, err error)
}

// crowd is what waiters cells need: Block, the i-th, waits for Release, which
// may come first.
type crowd interface {
	Block(i int)
	Release()
}

// quitter is a crowd that can be left: BlockContext ends with an error when ctx
// ends before Release.
type quitter interface {
	crowd
	BlockContext(ctx context.Context, i int) error
}

// auditor is a crowd that counts those who got what they waited for.
type auditor interface {
	crowd
	Audit() (got int)
}

// subjects is the registry. Library primitives and peers are alike in it.
var subjects = slices.Concat(libSubjects, cohortSubjects, rwSubjects, semSubjects, seqSubjects, fairSubjects, barrierSubjects, condSubjects, queueSubjects, memSubjects, matrixSubjects, goPeers, futexPeers, morePeers, cPeers, brokenPeers, brokenKit)

// findSubject gives the subject of the given name.
func findSubject(name string) (*subject, error) {
	for _, s := range subjects {
		if s.Name() == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no subject %q", name)
}

// selectSubjects gives the subjects of a scenario whose names match any of the
// patterns, which are those of path.Match; none selects all that are not
// hidden. Of those it gives the variants that match, where any are asked for.
func selectSubjects(scenario string, patterns, variants []string) ([]*subject, error) {
	var picked []*subject
	for _, s := range subjects {
		if !slices.Contains(s.Scenarios, scenario) {
			continue
		}
		ok := len(patterns) == 0 && !s.Hidden
		for _, p := range patterns {
			m, err := path.Match(p, s.Name())
			if err != nil {
				return nil, fmt.Errorf("--prim %q: %w", p, err)
			}
			ok = ok || p == s.Name() || m && !s.Hidden
		}
		wanted := len(variants) == 0
		for _, p := range variants {
			m, err := path.Match(p, s.variant())
			if err != nil {
				return nil, fmt.Errorf("--variant %q: %w", p, err)
			}
			wanted = wanted || m
		}
		if ok && wanted {
			picked = append(picked, s)
		}
	}
	return picked, nil
}
