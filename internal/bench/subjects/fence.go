//go:build linux

package subjects

import (
	"errors"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
)

// fenceSubjects are ways in which one process makes all other processes execute a memory fence.
var fenceSubjects = []*bench.Subject{
	{By: bench.Library, Prim: "fence", Check: shmsync.FeatureMembarrier.Check, Scenarios: []string{"fence"}, Open: openFence},
	{By: "test", Prim: "no-fence", Hidden: true, Scenarios: []string{"fence"}, Open: openNoFence},
}

// fence is the fence of the library. It calls membarrier(2), which interrupts each CPU on which a registered process
// runs.
type fence struct{}

func (fence) Fence() error { return shmsync.Fence() }

func openFence(w *bench.Worker, _ int) (any, error) {
	return w.Shared(func() (any, error) { return fence{}, shmsync.RegisterFence() })
}

// brokenFence is wrong on purpose: each of its fences fails.
type brokenFence struct{}

func (brokenFence) Fence() error { return errors.New("no fence was made") }

func openNoFence(*bench.Worker, int) (any, error) { return brokenFence{}, nil }
