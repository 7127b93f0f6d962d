//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// trusting runs f, a call of the method named what. It returns an error if f does not return, or if f returns an error
// that damaged words cannot explain. Some methods cannot return an error, so f may panic with an error of the library
// instead. Reset may also panic with a string. After any other panic, trusting returns an error.
func trusting(what string, words func() string, f func() error) error {
	return guarded(what, words, func() {
		defer func() {
			switch r := recover().(type) {
			case nil:
			case error:
				if errors.Is(r, shmsync.ErrClosed) {
					return
				}
				panic(r)
			case string:
				if what != "Reset" {
					panic(r)
				}
			default:
				panic(r)
			}
		}()
		if err := f(); err != nil && !isOneOf(err, shmsync.ErrCorrupt, shmsync.ErrCanceled, shmsync.ErrNoSpace, context.DeadlineExceeded) {
			panic(fmt.Errorf("%s: %w", what, err))
		}
	})
}

func isOneOf(err error, those ...error) bool {
	for _, e := range those {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// hostileBodies chooses which bytes of a body to overwrite, and with what. The range is all of the body, a part
// of it, or a single bit. The bytes are random, all ones, or small offsets.
func hostileBodies(r *rand.Rand, size int) (at uint64, b []byte) {
	n := []int{1, 8, 16, 64, size}[r.IntN(5)]
	at = uint64(r.IntN(size)) &^ 7
	if n == size {
		at = 0
	}
	b = make([]byte, n)
	switch r.IntN(4) {
	case 0:
		for i := range b {
			b[i] = byte(r.Uint32())
		}
	case 1:
		for i := range b {
			b[i] = 0xff
		}
	case 2:
		for i := 0; i < n; i += 8 { // offsets, which may be those of nodes
			v := uint64(r.IntN(1<<22)) &^ 63
			for k := 0; k < 8 && i+k < n; k++ {
				b[i+k] = byte(v >> (8 * k))
			}
		}
	}
	return at, b
}

// TestHostileSequencer: every call ends, with success or with an error, whatever bytes the body and the nodes
// have.
func TestHostileSequencer(t *testing.T) {
	rounds := proctest.Rounds(60, 600)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 3))
	for round := range rounds {
		func() {
			name := "shmsync-test-hostile-" + randomName()
			a, err := arena.Create(name, &arena.Options{Size: 4 << 20})
			require.NoError(t, err)
			defer a.Close()
			removeArena(name)
			s, err := prims.OpenSequencer(a, "s", nil)
			require.NoError(t, err)
			auto, err := prims.OpenEvent(a, "auto", &prims.EventOptions{Mode: prims.EventAutoReset})
			require.NoError(t, err)
			gate, err := prims.OpenEvent(a, "gate", &prims.EventOptions{Mode: prims.EventBidirectional})
			require.NoError(t, err)
			words := func() string { return fmt.Sprintf("seed %#x round %d\n%s", seed, round, words(a)) }
			var waits []*prims.Pending
			for range r.IntN(20) {
				waits = append(waits, s.WaitAsync(r.Uint64N(50)+1), auto.WaitAsync(), gate.WaitAsync())
			}
			for _, o := range []arenakernel.Object{s.Object(), auto.Object(), gate.Object()} {
				for range r.IntN(3) {
					at, b := hostileBodies(r, int(o.Size))
					prims.Scribble(a, o, at, b)
				}
				if r.IntN(2) == 0 {
					prims.ScribbleNodes(a, o, r)
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), hostileTimeout)
			defer cancel()
			calls := map[string]func() error{
				"Increment":        func() error { s.Increment(); return nil },
				"Advance":          func() error { s.Advance(s.Value() + 20); return nil },
				"WaitContext":      func() error { return s.WaitContext(ctx, s.Value()+1) },
				"WaitAsync":        func() error { s.WaitAsync(r.Uint64()).Cancel(); return nil },
				"CancelWaiters":    func() error { s.CancelWaiters(); return nil },
				"Stop":             func() error { s.Stop(); return nil },
				"Reset":            func() error { s.ResetTo(3); return nil },
				"Cancel":           func() error { cancelAll(waits); return nil },
				"auto.Set":         func() error { auto.Set(); return nil },
				"auto.Reset":       func() error { auto.Reset(); return nil },
				"auto.IsSet":       func() error { auto.IsSet(); auto.TryWait(); return nil },
				"auto.WaitContext": func() error { return auto.WaitContext(ctx) },
				"gate.Set":         func() error { gate.Set(); return nil },
				"gate.WaitContext": func() error { return gate.WaitContext(ctx) },
				"gate.Reset":       func() error { gate.Reset(); return nil },
				"gate.WaitReset":   func() error { return gate.WaitResetContext(ctx) },
				"look":             func() error { prims.LookAll(s, auto, gate); return nil },
				"State":            func() error { _ = words() + s.String() + auto.String() + gate.String(); a.Check(); return nil },
			}
			for what, f := range calls { // in random order
				require.NoError(t, trusting(what, words, f), "seed %#x round %d", seed, round)
			}
		}()
	}
}

func cancelAll(waits []*prims.Pending) {
	for _, p := range waits {
		p.Cancel()
	}
}

// TestScribbledSequencer: a peer keeps changing the bytes of a Sequencer and an Event while goroutines use
// them. Once the bytes of the Sequencer are valid again, it works again.
func TestScribbledSequencer(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 16 << 20})
	s, err := prims.OpenSequencer(a, "s", nil)
	require.NoError(t, err)
	auto, err := prims.OpenEvent(a, "auto", &prims.EventOptions{Mode: prims.EventAutoReset})
	require.NoError(t, err)
	d := proctest.Rounds(proctest.Scale(time.Second)/5, proctest.Scale(time.Second))
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var wg sync.WaitGroup
	errs := make(chan error, 100)
	for g := range 16 {
		r := rand.New(rand.NewPCG(uint64(g), 4))
		wg.Go(func() {
			for ctx.Err() == nil {
				brief, done := context.WithTimeout(ctx, hostileTimeout)
				err := trusting("call", func() string { return words(a) }, func() error {
					switch r.IntN(6) {
					case 0:
						s.Increment()
					case 1:
						return s.WaitContext(brief, s.Value()+r.Uint64N(3))
					case 2:
						s.WaitAsync(s.Value() + r.Uint64N(100)).Cancel()
					case 3:
						auto.Set()
					case 4:
						return auto.WaitContext(brief)
					case 5:
						s.CancelWaiters()
					}
					return nil
				})
				done()
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 5))
	for ctx.Err() == nil {
		for _, o := range []arenakernel.Object{s.Object(), auto.Object()} {
			at, b := hostileBodies(r, int(o.Size))
			prims.Scribble(a, o, at, b[:min(len(b), 64)])
			prims.ScribbleNodes(a, o, r)
		}
		jitter(r, 100_000)
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	prims.Scribble(a, s.Object(), 0, make([]byte, s.Object().Size))
	p := s.WaitAsync(1)
	s.Increment()
	require.NoError(t, p.Wait())
}
