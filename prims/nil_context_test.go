//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// contextKind makes a handle of one kind, in a state in which most of its calls have to wait.
type contextKind func(t *testing.T, a *arena.Arena, name string) any

func openTwice[L any](t *testing.T, open func() (L, error), block func(L)) L {
	x, err := open()
	require.NoError(t, err)
	other, err := open()
	require.NoError(t, err)
	if block != nil {
		block(other)
	}
	return x
}

var contextKinds = []contextKind{
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.Mutex, error) { return prims.OpenMutex(a, name, nil) }, (*prims.Mutex).Lock)
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.CohortMutex, error) { return prims.OpenCohortMutex(a, name, nil) }, (*prims.CohortMutex).Lock)
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.FairMutex, error) { return prims.OpenFairMutex(a, name, nil) }, (*prims.FairMutex).Lock)
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.SpinLock, error) { return prims.OpenSpinLock(a, name, nil) }, (*prims.SpinLock).Lock)
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.RWSpinLock, error) { return prims.OpenRWSpinLock(a, name, nil) }, (*prims.RWSpinLock).Lock)
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.RWMutex, error) { return prims.OpenRWMutex(a, name, nil) }, (*prims.RWMutex).Lock)
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.MultiLock, error) { return prims.OpenMultiLock(a, name, nil) }, func(x *prims.MultiLock) { x.Lock(1) })
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		m, err := prims.OpenMutex(a, "", nil)
		require.NoError(t, err)
		m.Lock()
		return openTwice(t, func() (*prims.Cond, error) { return prims.OpenCond(a, name, m, nil) }, nil)
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.Semaphore, error) { return prims.OpenSemaphore(a, name, 1, nil) }, func(s *prims.Semaphore) { s.Acquire(1) })
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.WaitGroup, error) { return prims.OpenWaitGroup(a, name, nil) }, func(g *prims.WaitGroup) { g.Add(1) })
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.Latch, error) { return prims.OpenLatch(a, name, 2, nil) }, nil)
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.Barrier, error) { return prims.OpenBarrier(a, name, 2, nil) }, nil)
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.Once, error) { return prims.OpenOnce(a, name, nil) }, nil)
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.Event, error) {
			return prims.OpenEvent(a, name, &prims.EventOptions{Mode: prims.EventBidirectional})
		}, nil)
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.Sequencer, error) { return prims.OpenSequencer(a, name, nil) }, nil)
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.Futex, error) { return prims.OpenFutex(a, name, nil) }, nil)
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.Future, error) { return prims.OpenFuture(a, name, nil) }, nil)
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.Queue[uint64], error) { return prims.OpenQueue[uint64](a, name, 1, nil) }, nil)
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.SignalWaker, error) { return prims.OpenSignalWaker(a, name, nil) }, nil)
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		return openTwice(t, func() (*prims.Synchronized[uint64], error) { return prims.OpenSynchronized(a, name, uint64(0), nil) }, nil)
	},
	func(t *testing.T, a *arena.Arena, name string) any {
		never := prims.Rules[uint64, uint64]{Claim: func(*uint64, uint64) bool { return false }}
		return openTwice(t, func() (*prims.Waitable[uint64, uint64], error) {
			return prims.OpenWaitable(a, name, uint64(0), never, nil)
		}, nil)
	},
}

// contextMethods returns the methods of x that take a context.
func contextMethods(x any) (methods []reflect.Method) {
	for i := range reflect.TypeOf(x).NumMethod() {
		m := reflect.TypeOf(x).Method(i)
		if strings.HasSuffix(m.Name, "Context") && m.Type.NumIn() > 1 && m.Type.In(1) == reflect.TypeFor[context.Context]() {
			methods = append(methods, m)
		}
	}
	return methods
}

// withoutContext calls the method m of x with a nil context. The other arguments are the number 1, functions that do
// nothing, and slices with one element.
func withoutContext(x any, m reflect.Method) (failed any) {
	in := []reflect.Value{reflect.ValueOf(x), reflect.Zero(m.Type.In(1))}
	for i := 2; i < m.Type.NumIn(); i++ {
		in = append(in, someValue(m.Type.In(i)))
	}
	defer func() {
		if failed = recover(); failed == nil {
			return
		}
		if _, ok := failed.(runtime.Error); !ok {
			failed = nil // the call has panicked because of a misuse, such as an upgrade without a hold
		}
	}()
	if m.Type.IsVariadic() {
		m.Func.CallSlice(in)
	} else {
		m.Func.Call(in)
	}
	return nil
}

func someValue(t reflect.Type) reflect.Value {
	switch t.Kind() {
	case reflect.Func:
		return reflect.MakeFunc(t, func([]reflect.Value) (out []reflect.Value) {
			for i := range t.NumOut() {
				out = append(out, reflect.Zero(t.Out(i)))
			}
			return out
		})
	case reflect.Slice:
		return reflect.Append(reflect.Zero(t), someValue(t.Elem()))
	case reflect.Int64:
		return reflect.ValueOf(int64(1)).Convert(t)
	}
	v := reflect.ValueOf(uint64(1))
	if strings.HasSuffix(t.Name(), "Phase") {
		v = reflect.ValueOf(uint64(0))
	}
	return v.Convert(t)
}

func waitsAt(a *arena.Arena, off arena.Offset) int {
	o, err := (*arenakernel.Arena)(a).ObjectAt(off)
	if err != nil {
		panic(err)
	}
	return len((*arenakernel.Arena)(a).WaitsOf(o))
}

// TestNilContextNeverEnds checks that every exported call with a context accepts nil as a context that never ends,
// even if the call has to wait.
func TestNilContextNeverEnds(t *testing.T) {
	a := newArena(t, nil)
	var seen []string
	for k, open := range contextKinds {
		for i := 0; ; i++ {
			name := fmt.Sprint(k, " ", i)
			x := open(t, a, name)
			methods := contextMethods(x)
			if i == len(methods) {
				break
			}
			kind, _, _ := strings.Cut(reflect.TypeOf(x).Elem().Name(), "[")
			called := kind + "." + methods[i].Name
			seen = append(seen, called)
			done := make(chan any, 1)
			go func() { done <- withoutContext(x, methods[i]) }()
			var failed any
			eventually(t, called+" waits or returns", func() string { return words(a) }, func() bool {
				select {
				case failed = <-done:
					done <- failed
					return true
				default:
					off := x.(interface{ Offset() arena.Offset }).Offset()
					return queued(a, off) > 0 || waitsAt(a, off) > 0
				}
			})
			require.NoError(t, x.(interface{ Close() error }).Close(), called)
			require.Nil(t, <-done, called)
		}
	}

	var none context.Context
	e, err := prims.OpenEvent(a, "event", nil)
	require.NoError(t, err)
	pending := e.WaitAsync()
	done := make(chan error, 3)
	go func() { done <- pending.WaitContext(none) }()
	go func() { _, err := prims.WaitAnyContext(none, e); done <- err }()
	go func() { done <- prims.WaitAllContext(none, e) }()
	e.Set()
	for range 3 {
		require.NoError(t, <-done)
	}
	name := arenaName(t)
	for _, open := range []func(context.Context, string, *arena.Options) (*arena.Arena, error){arena.OpenContext, arena.AttachContext} {
		b, err := open(none, name, nil)
		require.NoError(t, err)
		defer b.Close()
		_, err = open(none, name, nil)
		require.NoError(t, err)
	}
	seg, err := shm.Open(name, nil)
	require.NoError(t, err)
	b, err := arena.FromSegmentContext(none, seg, nil)
	require.NoError(t, err)
	defer b.Close()
	seen = append(seen, "FromSegmentContext", "Pending.WaitContext", "WaitAnyContext", "WaitAllContext", "OpenContext", "AttachContext",
		"RecoverAllContext", "RecoverAtContext") // the last two: see TestRecoverOfAnEndedContext

	var all []string
	for _, file := range []string{"prims.txt", "arena.txt"} {
		text, err := os.ReadFile(filepath.Join("..", "docs", "api", file))
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func (?:\(\w+ \*(\w+)[^)]*\) )?(\w+)\(ctx context.Context`).FindAllStringSubmatch(string(text), -1) {
			all = append(all, strings.TrimPrefix(m[1]+"."+m[2], "."))
		}
	}
	slices.Sort(seen)
	slices.Sort(all)
	require.Equal(t, all, slices.Compact(seen), "exported calls with a context")
}
