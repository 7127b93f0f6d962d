//go:build linux && crashpoint

package cinterop

import "testing"

// As the tests of the same names, with a process in Go that is stopped.

func TestReaperInGoFindsAnotherOwnerWord(t *testing.T) { reaperFindsAnotherWord(t, "go") }

func TestRecordIsCarriedOutInGoWhileItIsTheLast(t *testing.T) { carriesOutLate(t, "go") }
