//go:build linux

package subjects

import (
	"errors"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
)

// fenceSubjects are the fences that one process makes in all others.
var fenceSubjects = []*bench.Subject{
	{By: bench.Library, Prim: "fence", Check: shmsync.FeatureMembarrier.Check, Scenarios: []string{"fence"}, Open: openFence},
	{By: "test", Prim: "no-fence", Hidden: true, Scenarios: []string{"fence"}, Open: openNoFence},
}

// fence calls the fence of the library: a membarrier, which interrupts each CPU
// that runs a registered process.
type fence struct{}

func (fence) Fence() error { return shmsync.Fence() }

func openFence(w *bench.Worker, _ int) (any, error) {
	return w.Shared(func() (any, error) { return fence{}, shmsync.RegisterFence() })
}

// brokenFence fails.
type brokenFence struct{}

func (brokenFence) Fence() error { return errors.New("no fence was made") }

func openNoFence(*bench.Worker, int) (any, error) { return brokenFence{}, nil }
