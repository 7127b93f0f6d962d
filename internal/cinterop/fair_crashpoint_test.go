//go:build linux && crashpoint

package cinterop

import "testing"

// These tests repeat tests of fair_test.go. Here a process in Go stops or dies, beside processes in C.

func TestFairMutexTryLockCompletesUnlockOfGo(t *testing.T) { unlockStopped(t, "go", "c") }

func TestFairMutexGoDiesAroundAccept(t *testing.T) {
	t.Run("before", func(t *testing.T) { dieGranted(t, "go", "c", "record.await.resolved", false) })
	t.Run("after", func(t *testing.T) { dieGranted(t, "go", "c", "fairmutex.lock.accepted", true) })
}

func TestFairMutexGoDiesBeforeSecondAccept(t *testing.T) { dieBeforeSecondAccept(t, "go", "c") }

func TestFairMutexGoRefusesWaits(t *testing.T) { refuseNotRecoverable(t, "go", "c") }
