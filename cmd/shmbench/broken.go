//go:build linux

package main

import (
	"os"

	"github.com/shmsync/shmsync"
)

// brokenPeers are wrong on purpose: the tests of this program prove with them
// that wrong answers, hangs and crashes are seen.
var brokenPeers = []*subject{
	{By: "test", Prim: "open", Hidden: true, Scenarios: []string{"lock"},
		Open: func(*worker, int) (any, error) { return openLock{}, nil }},
	{By: "test", Prim: "stuck", Hidden: true, Scenarios: []string{"lock"},
		Open: func(w *worker, _ int) (any, error) { return stuckLock{w}, nil }},
	{By: "test", Prim: "crash", Hidden: true, Scenarios: []string{"lock"},
		Open: func(w *worker, _ int) (any, error) { return crashLock{}, nil }},
}

// openLock excludes nobody.
type openLock struct{}

func (openLock) Lock()   {}
func (openLock) Unlock() {}

// stuckLock is never free.
type stuckLock struct{ w *worker }

func (l stuckLock) Lock() {
	for {
		shmsync.Wait(futexWord(l.w.Word(0)), 0, 0)
	}
}

func (stuckLock) Unlock() {}

// crashLock ends the process that takes it.
type crashLock struct{}

func (crashLock) Lock()   { os.Exit(7) }
func (crashLock) Unlock() {}
