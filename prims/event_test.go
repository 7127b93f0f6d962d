//go:build linux

package prims_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

func newEvent(t testing.TB, opts *prims.EventOptions) *prims.Event {
	t.Helper()
	e, err := prims.OpenEvent(newArena(t, &arena.Options{Size: 16 << 20}), "", opts)
	require.NoError(t, err)
	return e
}

func BenchmarkEvent(b *testing.B) {
	for _, mode := range []struct {
		name string
		opts prims.EventOptions
	}{{"manual", prims.EventOptions{InitiallySet: true}}, {"auto", prims.EventOptions{InitiallySet: true, Mode: prims.EventAutoReset}}} {
		e := newEvent(b, &mode.opts)
		ctx := context.Background()
		for verb, do := range map[string]func(){
			"IsSet":    func() { e.IsSet() },
			"Set":      func() { e.Set() },
			"SetReset": func() { e.Reset(); e.Set() },
			"SetWait":  func() { e.Set(); e.WaitContext(ctx) },
		} {
			b.Run("mode="+mode.name+"/"+verb, func(b *testing.B) {
				e.Set()
				b.ReportAllocs()
				for b.Loop() {
					do()
				}
			})
		}
	}
}

func TestEventAllocatesNothing(t *testing.T) {
	for _, opts := range []prims.EventOptions{{}, {Mode: prims.EventAutoReset}} {
		e := newEvent(t, &opts)
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			e.Set()
			e.Set()
			e.IsSet()
			e.Wait()
			e.TryWait()
			e.Reset()
			e.Reset()
		}))
	}
}
