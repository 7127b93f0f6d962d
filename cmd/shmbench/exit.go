//go:build linux

package main

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/bench"
)

// These are the exit codes of the program.
const (
	exitOK        = 0
	exitUsage     = 1
	exitSkipped   = 2 // only with --strict
	exitViolation = 3
	exitCrashed   = 4 // a worker crashed or hung
)

// exitCode returns the highest exit code that any of the results requires. A violation, that is, a promise that a
// measured primitive broke, outranks all other codes.
func exitCode(results []*bench.Result, strict bool) int {
	code := exitOK
	for _, r := range results {
		switch status, _ := r.Status(); status {
		case bench.StatusViolation:
			return exitViolation
		case bench.StatusCrashed, bench.StatusHung:
			code = exitCrashed
		case bench.StatusSkipped:
			if strict && code == exitOK {
				code = exitSkipped
			}
		}
	}
	return code
}

// status is an exit status whose reason has been printed already.
type status int

func (s status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }
