//go:build linux

package prims_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/prims"
)

// TestWaitAnyOnAFutexBesideALaterToken checks that a WaitAny on a Futex does not miss a Post. The Post reaches the
// token just before the WaitAny sleeps. Then a waiter for a later token announces itself, which changes the word of the
// Futex again. If the WaitAny slept on this value of the word, only the next Post would wake it.
func TestWaitAnyOnAFutexBesideALaterToken(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	defer crashpoint.Disarm()
	a := newArena(t, nil)
	f, err := prims.OpenFutex(a, "f", nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	later := make(chan error, 1)
	crashpoint.ArmFunc("await.futex.judged", 1, func() {
		f.Post()
		go func() { later <- f.WaitContext(ctx, 100) }()
		eventually(t, "the other waiter has announced itself", f.String, func() bool { return strings.Contains(f.String(), "announced") })
		f.Check()
	})
	ended := make(chan error, 1)
	go func() {
		_, err := prims.WaitAny(f.At(1))
		ended <- err
	}()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-after(timeout()):
		t.Fatalf("WaitAny has not returned, although its token is reached: %v", f)
	}
	cancel()
	require.ErrorIs(t, <-later, context.Canceled)
}
