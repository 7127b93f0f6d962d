//go:build linux

package main

import "github.com/shmsync/shmsync/internal/bench/peers"

// helperCmd is the command that builds the helper, a C program that measures the primitives of the C library. It is for
// hosts that have no compiler.
type helperCmd struct {
	File string `arg:"" help:"Where to put it."`
}

// Help describes the command.
func (helperCmd) Help() string {
	return `Compiles the peers in C with --cc, which may be a compiler for another host, into a file that
this same shmbench takes there as --helper FILE.`
}

// Run builds the helper.
func (h helperCmd) Run(s *session) error {
	return peers.BuildHelper(s.common.CC, h.File)
}
