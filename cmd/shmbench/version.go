//go:build linux

package main

import (
	"fmt"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// versionFlag is the flag --version, which prints the version and ends the program.
type versionFlag bool

// BeforeReset is called by the parser of flags if the user gave the flag.
func (versionFlag) BeforeReset(k *kong.Kong) error {
	fmt.Fprintln(k.Stdout, versionText())
	k.Exit(0)
	return nil
}

// versionText returns the version of this build, for the user.
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
	return fmt.Sprintf("shmbench %s, commit %s", version, commit)
}
