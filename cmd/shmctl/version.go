//go:build linux

package main

import (
	"fmt"
	"runtime/debug"

	"github.com/alecthomas/kong"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// versionFlag prints the version and ends the program.
type versionFlag bool

// BeforeReset is called when the flag was given, before kong reports missing arguments.
func (versionFlag) BeforeReset(k *kong.Kong) error {
	fmt.Fprintln(k.Stdout, versionText())
	k.Exit(exitOK)
	return nil
}

// versionText returns the version of this build, and the layout version of the arenas that it reads.
func versionText() string {
	version, commit := "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		if version = info.Main.Version; version == "" {
			version = "(devel)"
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = s.Value
			}
		}
	}
	return fmt.Sprintf("shmctl %s, commit %s, memory layout %d", version, commit, arenakernel.LayoutVersion)
}
