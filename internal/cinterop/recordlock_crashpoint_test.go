//go:build linux && crashpoint

package cinterop

import "testing"

// These tests repeat tests of recordlock_test.go. Here the stopped process is in Go.

func TestReaperInGoFindsAnotherOwnerWord(t *testing.T) { reaperFindsAnotherWord(t, "go") }

func TestRecordIsCarriedOutInGoWhileItIsTheLast(t *testing.T) { carriesOutLate(t, "go") }
