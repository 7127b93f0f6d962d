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
	return `Compile the peers in C with --cc, which may be a compiler for another host. The result is a
file. On the other host, the same version of shmbench uses it with --helper FILE.`
}

// Run builds the helper.
func (h helperCmd) Run(s *session) error {
	return peers.BuildHelper(s.common.CC, h.File)
}
