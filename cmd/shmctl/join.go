//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/shm"
)

// joinSeen is like join, but first examines a snapshot of the arena. It refuses an arena if a living participant has no
// byte lock on this file: shmctl would take the participant for dead, and reap it.
func joinSeen(name string, snap *snapshot) (*arena.Arena, error) {
	if unlocked := snap.Unlocked(); len(unlocked) > 0 {
		return nil, refused{fmt.Sprintf("%s has no byte lock on this file, although its process exists: use the path by which it opened the arena; shmctl waits %s says more",
			snap.Title(unlocked[0]), diagnose.Quote(name))}
	}
	return join(name)
}

// join makes this process a participant of an arena. Packages shm and arena refuse a file that belongs neither to this
// user nor to root. The owner of such a file could truncate it, which would crash a process that has it mapped. If root
// runs shmctl, root has asked for exactly this file, so shmctl trusts the owner of the file. At worst, this owner
// crashes shmctl. Another user may replace the file before package shm opens it. So package shm checks that the owner
// is still the same.
func join(name string) (*arena.Arena, error) {
	opts := &arena.Options{Label: "shmctl"}
	path := name
	if !strings.Contains(name, "/") {
		path = shm.Dir + "/" + name
	}
	if st, err := os.Stat(path); err == nil && os.Geteuid() == 0 {
		opts.TrustUIDs = []uint32{st.Sys().(*syscall.Stat_t).Uid}
	}
	if path != name {
		return arena.Attach(name, opts)
	}
	seg, err := openPath(path, &shm.Options{TrustUIDs: opts.TrustUIDs})
	if err != nil {
		return nil, err
	}
	return arena.FromSegment(seg, opts)
}

// openPath opens a file by its path. The path may also be that of an open file of a process below /proc: a memfd and
// a removed file have no other path. Such a path looks like a symbolic link, which package shm does not follow.
func openPath(path string, opts *shm.Options) (*shm.Segment, error) {
	if ok, _ := filepath.Match("/proc/*/fd/*", path); !ok {
		return shm.OpenAt(path, opts)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return shm.FromFile(f, opts)
}
