//go:build linux

package prims

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/model"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/race"
)

// bug is a mistake in a protocol that its model must find: a mutant.
type bug string

// size says when the tests explore a model.
type size int

const (
	small size = iota // always
	large             // only with SHMSYNC_TEST_LONG=1, because it takes longer than 1.5 s
)

// exploration is a model of some size, with the bugs that it has to find.
type exploration struct {
	name    string
	size    size
	explore func(bug) model.Result
	bugs    []bug
}

// The names of threads and processes for traces. Each step of a model needs such a name. To make the name anew in each
// step would take a sixth of the time.
var (
	namesT       = numbered("T%d")
	namesG       = numbered("g%d")
	threadNames  = numbered("thread %d")
	processNames = numbered("process %d")
)

func numbered(format string) (names [16]string) {
	for i := range names {
		names[i] = fmt.Sprintf(format, i)
	}
	return names
}

// requireModels requires two things of each exploration. It finds no violation in the model without
// a bug, and it finds a violation in the model with any one of the bugs.
func requireModels(t *testing.T, all []exploration) {
	if race.Enabled {
		t.Skip("needs a build without the race detector: a single goroutine explores the model, ten times as slowly with it")
	}
	t.Parallel()
	for i, e := range all {
		t.Run(e.name, func(t *testing.T) {
			if i > 0 && testing.Short() {
				t.Skip("needs a run without -short: with it, the first exploration of each model runs")
			}
			if e.size == large && !proctest.Long() {
				t.Skip("needs SHMSYNC_TEST_LONG=1: the model is large")
			}
			r := e.explore("")
			if r.Violation != nil {
				t.Fatalf("after %d states: %v", r.States, r.Violation)
			}
			t.Logf("%d states, %d steps: correct", r.States, r.Steps)
			for _, b := range e.bugs {
				r := e.explore(b)
				require.NotNil(t, r.Violation, "%s: not found in %d states", b, r.States)
				require.NotErrorIs(t, r.Violation, model.ErrTooMany, "%s", b)
				t.Logf("%s: %v after %d steps, %d states explored", b, r.Violation.Err, len(r.Violation.Trace)-1, r.States)
			}
		})
	}
}

// requireSameAsDistinct requires that explorations find the same with each bug whether they leave out equivalent states
// or not. The parameter models returns explorations. If its argument distinct is true, they visit all states.
func requireSameAsDistinct(t *testing.T, models func(distinct bool) []func(bug) model.Result, bugs []bug) {
	t.Helper()
	all := models(true)
	for i, explore := range models(false) {
		for _, b := range bugs {
			with, without := explore(b), all[i](b)
			require.Equal(t, without.Violation == nil, with.Violation == nil, "model %d, %q", i, b)
			switch {
			case b == "":
				require.Less(t, with.States, without.States, "model %d", i)
			case with.Violation == nil:
				require.LessOrEqual(t, with.States, without.States, "model %d, %q", i, b)
			default:
				require.ErrorIs(t, with.Violation, without.Violation.Err, "model %d, %q", i, b)
				require.Len(t, with.Violation.Trace, len(without.Violation.Trace), "model %d, %q", i, b)
			}
		}
	}
}
