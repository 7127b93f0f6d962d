// Package testenv has the one name of the standard library's internal/testenv that
// its tests of package sync need.
package testenv

import "testing"

// MustHaveExec does nothing, because the tests run only on systems where a program can start another.
func MustHaveExec(testing.TB) {}
