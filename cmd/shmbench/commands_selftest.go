//go:build linux

package main

import (
	"errors"

	"github.com/shmsync/shmsync/internal/selftest"
)

// selftestCmd tests on this host whether the library keeps its promises. It measures nothing, so it is also useful
// where times have no meaning, as in an emulator.
type selftestCmd struct {
	Only []string `placeholder:"PATTERN" help:"Proofs, as in crash/* or place/*. Default: all."`
}

// Help describes the command.
func (selftestCmd) Help() string {
	return `Print a line for each proof, and one for all of them:

  RESULT ok NAME: what was seen
  RESULT skip NAME: why this host cannot show it
  RESULT fail NAME: what is wrong
  RESULT total: 20 ok, 3 skip, 0 fail

No proof looks at the time, but a process that does not answer within three times
--timeout counts as failed. Exit status 3 if one failed.`
}

// Run runs the tests.
func (c *selftestCmd) Run(s *session) error {
	err := selftest.Run(s.ctx, &selftest.Options{Only: c.Only, Timeout: s.common.Timeout, DryRun: s.common.DryRun, Strict: s.common.Strict, Out: s.stdout})
	switch {
	case errors.Is(err, selftest.ErrFailed):
		return status(exitViolation)
	case errors.Is(err, selftest.ErrSkipped):
		return status(exitSkipped)
	}
	return err
}

// selftestWorkerCmd is the hidden command that runs one process of a test.
type selftestWorkerCmd struct {
	Role string   `arg:"" help:"What it does."`
	Args []string `arg:"" optional:"" help:"With what."`
}

// Run runs one process of a test.
func (c *selftestWorkerCmd) Run(*session) error { return selftest.RunWorker(c.Role, c.Args) }
