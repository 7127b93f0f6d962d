//go:build linux && crashpoint

package cinterop

import (
	"fmt"
	"strings"
	"testing"
)

// These tests repeat tests of cond_test.go. A process in Go stops or dies, and the other processes are in C.

func TestCondGoSignalledDies(t *testing.T) {
	for _, point := range condWoken {
		t.Run(point, func(t *testing.T) { condDies(t, "go", "c", point) })
	}
}

func TestCondGoBroadcastDies(t *testing.T) {
	for _, point := range append(condWoken, "cond.settle.committed") {
		t.Run(point, func(t *testing.T) { condBroadcastDies(t, "go", "c", point) })
	}
}

func TestCondSignalOfGoPassesToNoLaterWait(t *testing.T) { condNoLaterWait(t, "go", "c") }

func TestCondSignalSeesAnUnfinishedWaitOfGo(t *testing.T) { condUnfinished(t, "go", "c") }

func TestCondGoCannotLock(t *testing.T) {
	t.Run("lives", func(t *testing.T) { condCannotLock(t, "go", "c", "") })
	for _, point := range condPassing {
		t.Run(point, func(t *testing.T) { condCannotLock(t, "go", "c", point) })
	}
}

func TestCondGoStoppedAtEachPoint(t *testing.T) {
	for _, s := range condStops {
		for _, point := range s.points {
			if point == "park.waitnode.asleep" {
				continue // not in Go, where a goroutine waits behind a poller
			}
			t.Run(strings.TrimPrefix(s.verb+" "+s.wakes, "cond.")+fmt.Sprint(s.args)+"/"+point, func(t *testing.T) {
				condStopped(t, "go", "c", s.verb, s.args, s.wakes, point)
			})
		}
	}
}
