package proctest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// fakeTB is a testing.TB that may fail without failing the real test.
type fakeTB struct {
	testing.TB // implements the private method that no other type can implement

	mu       sync.Mutex
	failed   bool
	skipped  bool
	log      strings.Builder
	cleanups []func()
}

// runFake runs f and then its cleanups, as if f were a test.
func runFake(t *testing.T, f func(testing.TB)) *fakeTB {
	t.Helper()
	tb := &fakeTB{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, cleanup := range slices.Backward(tb.cleanups) {
				cleanup()
			}
		}()
		f(tb)
	}()
	<-done
	return tb
}

func (tb *fakeTB) Helper() {}

func (tb *fakeTB) Cleanup(f func()) { tb.cleanups = append(tb.cleanups, f) }

func (tb *fakeTB) Logf(format string, args ...any) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	fmt.Fprintf(&tb.log, format+"\n", args...)
}

func (tb *fakeTB) Errorf(format string, args ...any) {
	tb.Logf(format, args...)
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.failed = true
}

func (tb *fakeTB) Fatalf(format string, args ...any) {
	tb.Errorf(format, args...)
	runtime.Goexit()
}

func (tb *fakeTB) Fatal(args ...any) { tb.Fatalf("%s", fmt.Sprint(args...)) }

func (tb *fakeTB) Skip(args ...any) {
	tb.Logf("%s", fmt.Sprint(args...))
	tb.mu.Lock()
	tb.skipped = true
	tb.mu.Unlock()
	runtime.Goexit()
}

func (tb *fakeTB) Skipped() bool {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return tb.skipped
}

func (tb *fakeTB) Failed() bool {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return tb.failed
}

// output returns what the test has logged.
func (tb *fakeTB) output() string {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return tb.log.String()
}
