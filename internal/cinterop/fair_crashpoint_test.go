//go:build linux && crashpoint

package cinterop

import "testing"

// As the tests of the same names, with a process in Go that stops or dies beside processes in C.

func TestFairMutexTryLockCompletesUnlockOfGo(t *testing.T) { unlockStopped(t, "go", "c") }

func TestFairMutexGoDiesAroundAccept(t *testing.T) {
	t.Run("before", func(t *testing.T) { dieGranted(t, "go", "c", "record.await.resolved", false) })
	t.Run("after", func(t *testing.T) { dieGranted(t, "go", "c", "fairmutex.lock.accepted", true) })
}

func TestFairMutexGoDiesBeforeSecondAccept(t *testing.T) { dieBeforeSecondAccept(t, "go", "c") }

func TestFairMutexGoRefusesWaits(t *testing.T) { refuseNotRecoverable(t, "go", "c") }
