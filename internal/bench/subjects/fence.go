//go:build linux

package subjects

import (
	"errors"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
)

// fenceSubjects are the fences that one process makes all others pass.
var fenceSubjects = []*bench.Subject{
	{By: bench.Library, Prim: "fence", Check: shmsync.FeatureMembarrier.Check, Scenarios: []string{"fence"}, Open: openFence},
	{By: "test", Prim: "no-fence", Hidden: true, Scenarios: []string{"fence"}, Open: openNoFence},
}

// fence calls the library's fence. That is a membarrier, which interrupts each CPU on which a registered process
// runs.
type fence struct{}

func (fence) Fence() error { return shmsync.Fence() }

func openFence(w *bench.Worker, _ int) (any, error) {
	return w.Shared(func() (any, error) { return fence{}, shmsync.RegisterFence() })
}

// brokenFence fails.
type brokenFence struct{}

func (brokenFence) Fence() error { return errors.New("no fence was made") }

func openNoFence(*bench.Worker, int) (any, error) { return brokenFence{}, nil }
