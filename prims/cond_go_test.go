//go:build linux

package prims_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// These tests have the scenarios of Go's tests for sync.Cond.

// TestCondGoSignal: Signal wakes one goroutine at a time, and no other goroutine returns from Wait.
func TestCondGoSignal(t *testing.T) {
	a := newArena(t, nil)
	m := newMutex(t, a, nil)
	c := newCond(t, a, m)
	var all sync.WaitGroup
	defer all.Wait() // before the arena is closed
	const n = 2
	awake := make(chan bool, n)
	for range n {
		all.Go(func() {
			m.Lock()
			defer m.Unlock()
			c.Wait()
			awake <- true
		})
	}
	condWaits(t, c, n)
	for left := n - 1; left >= 0; left-- {
		m.Lock()
		c.Signal()
		m.Unlock()
		<-awake
		condWaits(t, c, left)
		require.Empty(t, awake)
	}
	c.Signal()
}

// TestCondGoGenerations: goroutines that began to wait earlier are woken earlier.
func TestCondGoGenerations(t *testing.T) {
	a := newArena(t, nil)
	m := newMutex(t, a, nil)
	c := newCond(t, a, m)
	var all sync.WaitGroup
	defer all.Wait() // before the arena is closed
	const n = 100
	awake := make(chan int, n)
	for i := range n {
		all.Go(func() {
			m.Lock()
			defer m.Unlock()
			c.Wait()
			awake <- i
		})
		if i > 0 {
			require.Equal(t, i-1, <-awake)
		}
		condWaits(t, c, 1)
		m.Lock()
		c.Signal()
		m.Unlock()
	}
	require.Equal(t, n-1, <-awake)
}

// TestCondGoBroadcast: all goroutines return from Wait after a Broadcast, in each of many rounds.
func TestCondGoBroadcast(t *testing.T) {
	a := newArena(t, nil)
	m := newMutex(t, a, nil)
	c := newCond(t, a, m)
	var all sync.WaitGroup
	defer all.Wait() // before the arena is closed
	const n = 200
	awake := make(chan int, n)
	exit := false
	for g := range n {
		all.Go(func() {
			m.Lock()
			defer m.Unlock()
			for !exit {
				c.Wait()
				awake <- g
			}
		})
	}
	for i := range n / 10 {
		condWaits(t, c, n)
		require.Empty(t, awake)
		m.Lock()
		exit = i == n/10-1
		c.Broadcast()
		m.Unlock()
		seen := map[int]bool{}
		for range n {
			g := <-awake
			require.False(t, seen[g], "woken twice")
			seen[g] = true
		}
	}
	condWaits(t, c, 0)
	c.Broadcast()
}

// TestCondGoStealing: a goroutine begins to wait after a Signal and before the woken goroutine has returned from
// Wait. The later goroutine must not take the signal, which is for a goroutine that waited before the Signal.
func TestCondGoStealing(t *testing.T) {
	a := newArena(t, nil)
	m := newMutex(t, a, nil)
	c := newCond(t, a, m)
	var all sync.WaitGroup
	defer all.Wait() // before the arena is closed
	rounds := proctest.Rounds(100, 1000)
	for range rounds {
		first := make(chan struct{})
		all.Go(func() {
			m.Lock()
			c.Wait()
			m.Unlock()
			close(first)
		})
		condWaits(t, c, 1)
		var came atomic.Bool
		second := make(chan struct{})
		over := false
		m.Lock()
		c.Signal()
		all.Go(func() {
			m.Lock()
			for !over {
				came.Store(true)
				c.Wait()
			}
			m.Unlock()
			close(second)
		})
		m.Unlock()
		<-first
		m.Lock()
		over = true
		m.Unlock()
		c.Broadcast()
		<-second
		require.Equal(t, prims.CondState{}, c.State())
	}
}
