//go:build linux && crashpoint

package cinterop

import (
	"testing"

	"github.com/shmsync/shmsync/internal/race"
)

// These tests repeat tests of multi_record_test.go. Here a process in Go stops or dies, beside processes in C.

func TestMultiLockGoKilledAtEachPoint(t *testing.T) {
	if race.Enabled {
		t.Skip("needs a build without the race detector, with which a process in Go opens no word")
	}
	eachMultiEnd(t, "go", []string{"c"}, multiKilled)
}

func TestMultiLockGoStoppedAtEachPoint(t *testing.T) {
	if race.Enabled {
		t.Skip("needs a build without the race detector, with which a process in Go opens no word")
	}
	eachMultiEnd(t, "go", []string{"c"}, multiStopped)
}
