//go:build linux

package main

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

//go:embed peer.c peer.h peer_cells.h peer_ipc.h peer_load.h
var peerSource embed.FS

// cPeers are what a C program of this host has. The embedded helper runs them.
var cPeers = []*subject{
	cPeer("futex", "uncontended", "handoff", "wake", "lock", "event"),
	cPeer("futex-spin1000", "uncontended", "handoff", "wake", "lock"),
	cPeer("pthread", "uncontended", "lock", "multi"),
	cPeer("robust", "uncontended", "lock", "crash", "rw", "multi"),
	cPeer("cond", "handoff", "wake", "cond", "event", "queue"),
	cPeer("sem", "uncontended", "handoff", "wake", "lock", "sem"),
	cPeer("rwlock", "uncontended", "readers", "rw"),
	cPeer("rwlock-read", "uncontended"),
	cPeer("barrier", "barrier"),
	{By: "c", Prim: "pi", C: true, Scenarios: []string{"uncontended", "lock"}, Brief: []string{}, Check: checkPI},
	{By: "c", Prim: "robust-pi", C: true, Scenarios: []string{"uncontended", "lock", "crash"}, Brief: []string{}, Check: checkPI},
	{By: "c", Prim: "sysv", C: true, Scenarios: []string{"uncontended", "handoff", "wake", "lock", "sem", "crash"},
		Brief: []string{}, Check: checkSysV, Clean: removeSysV},
	{By: "c", Prim: "mq", C: true, Scenarios: []string{"uncontended", "handoff", "wake", "lock"},
		Brief: []string{}, Check: checkQueues, Files: messageQueues},
	{By: "c", Prim: "pthread-spin", C: true, Places: []string{placeCross, placeAny, placeSame},
		Scenarios: []string{"uncontended", "lock"}, Brief: []string{}},
	cSpin,
}

// cSpin never sleeps, so that two of it on one CPU wait for the scheduler's
// slices.
var cSpin = &subject{By: "c", Prim: "spin", C: true, Places: []string{placeCross, placeAny},
	Scenarios: []string{"handoff", "lock"}}

func cPeer(prim string, scenarios ...string) *subject {
	return &subject{By: "c", Prim: prim, C: true, Scenarios: scenarios}
}

var errNoCompiler = errors.New("no C compiler")

// buildHelper compiles the helper with the compiler cc, or finds what an
// earlier run has compiled from the same source.
func buildHelper(cc string) (string, error) {
	if cc == "none" {
		return "", fmt.Errorf("%w: --cc none", errNoCompiler)
	}
	path, err := exec.LookPath(cc)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoCompiler, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = filepath.Join(os.TempDir(), fmt.Sprintf("shmbench-%d", os.Getuid()))
	}
	sources, sum, err := readPeer(path)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "shmbench")
	helper := filepath.Join(dir, "peer-"+sum)
	if st, err := os.Stat(helper); err == nil && st.Mode().IsRegular() {
		return helper, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	for name, text := range sources {
		if err := os.WriteFile(filepath.Join(work, name), text, 0o600); err != nil {
			return "", err
		}
	}
	built := filepath.Join(work, "peer")
	args := slices.Concat(helperFlags, []string{"-o", built, filepath.Join(work, "peer.c")}, helperLibs)
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", path, err, out)
	}
	return helper, os.Rename(built, helper)
}

// readPeer gives the helper's sources and a digest of all that its build depends
// on.
func readPeer(cc string) (sources map[string][]byte, sum string, err error) {
	h := sha256.New()
	fmt.Fprintln(h, cc, helperFlags, helperLibs)
	sources = map[string][]byte{}
	for _, name := range []string{"peer.c", "peer.h", "peer_cells.h", "peer_ipc.h", "peer_load.h"} {
		text, err := peerSource.ReadFile(name)
		if err != nil {
			return nil, "", err
		}
		sources[name] = text
		h.Write(text)
	}
	return sources, hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// helperFlags come before the source, and helperLibs, which an older libc has message
// queues in, after it.
var (
	helperFlags = []string{"-O2", "-pthread"}
	helperLibs  = []string{"-lrt"}
)
