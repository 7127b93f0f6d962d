//go:build linux

package prims_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// gateBody is an object whose bytes the test overwrites as a peer could.
type gateBody struct {
	a *arena.Arena
	o arenakernel.Object
}

func (g *gateBody) words() string { return prims.Describe(g.a, g.o) }

// latchBytes is how many bytes at the beginning of the body stay as they are while calls without a context run. Random
// bytes there could name a living holder, for which such calls would wait for ever.
const latchBytes = 192

// recordWords returns the offsets of the words of the object's slot records, without the words of their headers.
func (g *gateBody) recordWords() (words []arena.Offset) {
	(*arenakernel.Arena)(g.a).EachSlotRecord(g.o, 0, func(off arenakernel.Offset, _ int) bool {
		for at := arena.Offset(arenakernel.SlotRecordHeader); at < 128; at += 8 {
			words = append(words, off+at)
		}
		return true
	})
	return words
}

// scribble overwrites n random words of the body and of the slot records. The parameter from is the number of bytes at
// the beginning of the body that stay as they are.
func (g *gateBody) scribble(r *rand.Rand, from, n int) {
	from %= int(g.o.Size) // a Once is shorter
	records := g.recordWords()
	for range n {
		at := g.o.Body + arena.Offset(from+8*r.IntN((int(g.o.Size)-from)/8))
		if len(records) > 0 && r.IntN(2) == 0 {
			at = records[r.IntN(len(records))]
		}
		arena.At[atomic.Uint64](g.a, at).Store(hostileValue(g, r))
	}
}

// hostileValue returns a number that may be valid in a word of the object: for example a small count, an ID or an
// offset.
func hostileValue(g *gateBody, r *rand.Rand) uint64 {
	switch r.IntN(6) {
	case 0:
		return uint64(r.IntN(5))
	case 1:
		return uint64(g.a.Self())
	case 2:
		return ^uint64(0) - uint64(r.IntN(3))
	case 3:
		return uint64(g.o.Body) + uint64(8*r.IntN(80))
	case 4:
		return uint64(r.IntN(1 << 24))
	}
	return r.Uint64()
}

// clean makes all bytes of the object 0.
func (g *gateBody) clean() {
	for off := uint64(0); off+8 <= g.o.Size; off += 8 {
		arena.At[atomic.Uint64](g.a, g.o.Body+arena.Offset(off)).Store(0)
	}
	for _, at := range g.recordWords() {
		arena.At[atomic.Uint64](g.a, at).Store(0)
	}
}

// guardedGate runs f as guarded does, and accepts the panics of a WaitGroup, a Latch, a Barrier and a Once.
func guardedGate(what string, words func() string, f func()) error {
	return guardedBy(func(r any) bool {
		switch r := r.(type) {
		case error:
			var e *shmsync.Error
			return errors.As(r, &e)
		case string:
			return strings.HasPrefix(r, "shmsync: ") && !strings.Contains(r, "offset")
		}
		return false
	}, what, words, f)
}

// hostileDo returns calls of all methods of an object, with and without a context.
func hostileDo(g gate) (withContext map[string]func(context.Context), without map[string]func()) {
	switch x := g.(type) {
	case *prims.WaitGroup:
		return map[string]func(context.Context){"WaitContext": func(ctx context.Context) { x.WaitContext(ctx) }},
			map[string]func(){
				"Add": func() { x.Add(2) }, "Claim": func() { x.Claim(1) }, "Done": func() { x.Done() }, "Reset": func() { x.Reset() },
				"State": func() { _, _ = x.State(), x.String() },
			}
	case *prims.Latch:
		return map[string]func(context.Context){"WaitContext": func(ctx context.Context) { x.WaitContext(ctx) }},
			map[string]func(){
				"Claim": func() { x.Claim(1) }, "CountDown": func() { x.CountDown(2) }, "Reset": func() { x.Reset() },
				"TryWait": func() { x.TryWait() }, "State": func() { _, _ = x.State(), x.String() },
			}
	case *prims.Barrier:
		return map[string]func(context.Context){
				"ArriveAndWaitContext": func(ctx context.Context) { x.ArriveAndWaitContext(ctx) },
				"WaitContext":          func(ctx context.Context) { x.WaitContext(ctx, x.State().Phase) },
			},
			map[string]func(){
				"Register": func() { x.Register(1) }, "Deregister": func() { x.Deregister() }, "Reset": func() { x.ResetTo(2) },
				"State": func() { _, _ = x.State(), x.String() },
			}
	case *prims.Once:
		return map[string]func(context.Context){"DoContext": func(ctx context.Context) { x.DoContext(ctx, func() {}) }},
			map[string]func(){"Done": func() { x.Done() }, "State": func() { _, _ = x.State(), x.String() }}
	}
	return nil, nil
}

// TestHostileGates: a peer writes anything into the body. Each operation ends with success or an
// error, no later than its context. When the bytes are correct again, the object can be used.
func TestHostileGates(t *testing.T) {
	d := proctest.Rounds(proctest.Scale(4*time.Second)/8, proctest.Scale(4*time.Second))
	a := newArena(t, &arena.Options{Size: 8 << 20, MaxParticipants: 8})
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	rounds := 0
	for kind, g := range gates(t, a) {
		o, err := (*arenakernel.Arena)(a).ObjectAt(g.Offset())
		require.NoError(t, err)
		body := &gateBody{a, o}
		with, without := hostileDo(g)
		for end := time.Now().Add(d / 4); time.Now().Before(end); rounds++ {
			for what, f := range with {
				ctx, cancel := context.WithTimeout(t.Context(), hostileTimeout)
				body.scribble(r, []int{0, latchBytes}[r.IntN(2)], 1+r.IntN(20))
				require.NoError(t, guardedGate(kind+" "+what, body.words, func() { f(ctx) }))
				// Now the bytes change while the call waits.
				var wg sync.WaitGroup
				wg.Go(func() { err = guardedGate(kind+" "+what, body.words, func() { f(ctx) }) })
				for range 5 {
					body.scribble(r, []int{0, latchBytes}[r.IntN(2)], 3)
				}
				wg.Wait()
				require.NoError(t, err)
				cancel()
				body.clean()
			}
			for what, f := range without {
				body.scribble(r, latchBytes, 1+r.IntN(20))
				require.NoError(t, guardedGate(kind+" "+what, body.words, f))
				_ = body.words()
				_ = a.Check()
				body.clean()
			}
		}
		body.clean()
	}
	t.Logf("%d rounds", rounds)
	g, once := newWaitGroup(t, a, "w"), newOnce(t, a, "o")
	b, err := prims.AttachBarrier(a, "b", nil)
	require.NoError(t, err)
	g.Add(1)
	g.Done()
	require.NoError(t, g.WaitContext(t.Context()))
	b.Register(1)
	ran := false
	require.NoError(t, once.DoContext(t.Context(), func() { ran = true }))
	require.True(t, ran)
}

// TestHostileGateNodes: the nodes of waits are overwritten while other goroutines wait in the same
// queue.
func TestHostileGateNodes(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 8 << 20, MaxParticipants: 8})
	r := rand.New(rand.NewPCG(rand.Uint64(), 1))
	g := newWaitGroup(t, a, "w")
	o, err := (*arenakernel.Arena)(a).ObjectAt(g.Offset())
	require.NoError(t, err)
	body := &gateBody{a, o}
	rounds := proctest.Rounds(20, 100)
	for range rounds {
		g.Add(1)
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 6)
		for range cap(errs) {
			go func() { errs <- guardedGate("WaitContext", body.words, func() { g.WaitContext(ctx) }) }()
		}
		eventually(t, "they wait", body.words, func() bool { return queued(a, g.Offset()) >= 3 })
		(*arenakernel.Arena)(a).EachNode(g.Offset(), func(off arena.Offset, n *arenakernel.Node) {
			switch r.IntN(4) {
			case 0:
				n.Next().Store(hostileValue(body, r))
			case 1:
				n.Next().Store(uint64(off)/64<<32 | uint64(off)/64) // links the node to itself
			}
		})
		require.NoError(t, guardedGate("Done", body.words, func() { g.Done() }))
		// Done may miss waits whose nodes were overwritten. These waits end when cancel ends their context. The
		// cancellation comes late, because on a busy machine Done may need some time to wake the other waits.
		giveUp := time.AfterFunc(10*hostileTimeout, cancel)
		for range cap(errs) {
			require.NoError(t, <-errs)
		}
		giveUp.Stop()
		cancel()
	}
	g.Wait()
}
