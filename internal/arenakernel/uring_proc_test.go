//go:build linux

package arenakernel

import (
	"bytes"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

// busyReader describes a process that always has reads into a Block in progress until it is killed.
type busyReader struct {
	Arena, File string
	Size        uint64
	Parts       int    // number of reads in progress at the same time
	By          string // the system call that reads
	Direct      bool   // whether the file is opened with O_DIRECT
	KernelIO    KernelIO
}

func init() {
	proctest.Register("arena/busy reader", func(c *proctest.Child) {
		var p busyReader
		c.Params(&p)
		a, err := Attach(p.Arena, &Options{Label: "victim", KernelIO: p.KernelIO})
		if err != nil {
			c.Fatal(err)
		}
		data, err := pagesOf(a, p.Size)
		if err != nil {
			c.Fatal(err)
		}
		flags := unix.O_RDONLY
		if p.Direct {
			flags |= unix.O_DIRECT
		}
		f, err := unix.Open(p.File, flags, 0)
		if err != nil {
			c.Fatal(err)
		}
		read, err := p.reader(f, data)
		if err != nil {
			c.Fatal(err)
		}
		c.Say(a.self)
		for {
			if err := read(); err != nil {
				c.Fatal(err)
			}
		}
	})
}

// reader returns a function that reads the whole file once.
func (p *busyReader) reader(f int, data []byte) (func() error, error) {
	switch p.By {
	case "io_uring", "io_uring, by a worker":
		u, err := newURing(uint32(p.Parts))
		var flags byte
		if p.By != "io_uring" {
			flags = uringAsync
		}
		return func() error { return u.readAll(f, data, p.Parts, flags) }, err
	case "pread":
		return p.readAlone(f, data), nil
	default:
		x, err := newAIO(p.Parts)
		return func() error { return x.readAll(f, data, p.Parts) }, err
	}
}

// readAlone reads the whole file in one system call of one thread. The process also has many threads
// that make no system call.
func (p *busyReader) readAlone(f int, data []byte) func() error {
	for range p.Parts {
		go func() {
			runtime.LockOSThread()
			select {}
		}()
	}
	return func() error {
		n, err := unix.Pread(f, data, 0)
		if err == nil && n != len(data) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
}

// pagesOf makes a Block and returns whole pages of it, because O_DIRECT needs whole pages.
func pagesOf(a *Arena, size uint64) ([]byte, error) {
	b, err := a.Block("data", size+pageBytes)
	if err != nil {
		return nil, err
	}
	return b[-addressOf(b)%pageBytes:][:size], nil
}

const (
	pageBytes   = 4096
	busyParts   = 64
	busyPattern = 0xAA
)

// lateStores kills busy readers, one after the other. It returns the number of readers for which bytes of the
// Block still changed after Gone had returned true.
func lateStores(t *testing.T, dir string, r busyReader, kills int) (late int) {
	t.Helper()
	if u, err := newURing(1); strings.HasPrefix(r.By, "io_uring") && (errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM)) {
		t.Skipf("needs io_uring, which this kernel or a sandbox does not allow: %v", err)
	} else if err == nil {
		require.NoError(t, unix.Close(u.fd))
	}
	f, err := os.CreateTemp(dir, "shmsync-busy")
	require.NoError(t, err)
	t.Cleanup(func() { os.Remove(f.Name()) })
	_, err = f.Write(bytes.Repeat([]byte{busyPattern}, int(r.Size)))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	if r.Direct {
		direct, err := os.OpenFile(f.Name(), os.O_RDONLY|unix.O_DIRECT, 0)
		if err != nil {
			t.Skipf("needs O_DIRECT, which the file system of %s does not have: %v", dir, err)
		}
		require.NoError(t, direct.Close())
	}
	ta := newTestArena(t, 4)
	ta.opts.Size = 2*int64(r.Size) + 4<<20
	a, err := Create(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	data, err := pagesOf(a, r.Size)
	require.NoError(t, err)
	r.Arena, r.File, r.Parts = ta.name, f.Name(), busyParts
	for range kills {
		clear(data)
		v := proctest.Start(t, "arena/busy reader", proctest.Params(r))
		var n ParticipantID
		v.Recv(t, &n)
		pollFor(t, a, func() bool { return data[0] == busyPattern && data[r.Size-1] == busyPattern }) // its second read has begun
		v.Signal(t, unix.SIGKILL)
		for end := shmsync.Monotonic() + int64(bound()); !a.Dead(n) || !a.Gone(n); {
			if shmsync.Monotonic() > end {
				t.Fatalf("it is not gone within %v\n%s", bound(), dumpWords(ta.path()))
			}
		}
		clear(data)
		changed := false
		for end := shmsync.Monotonic() + 3e8; shmsync.Monotonic() < end && !changed; {
			for k := 0; k < len(data); k += pageBytes {
				changed = changed || data[k] != 0
			}
		}
		if changed {
			late++
		}
		v.Wait(t)
		if changed { // wait, so that no late store of this reader counts for the next one
			pollForQuiet(data)
		}
	}
	return late
}

// pollForQuiet clears data again and again, until no other bytes have appeared in it for 300 ms.
func pollForQuiet(data []byte) {
	for end := shmsync.Monotonic() + 3e8; shmsync.Monotonic() < end; {
		for k := 0; k < len(data); k += pageBytes {
			if data[k] != 0 {
				clear(data)
				end = shmsync.Monotonic() + 3e8
			}
		}
	}
}

// TestReadsInFlightEndBeforeGone: the kernel may make a read for a process in the background. The read
// ends before Gone returns true if a thread of the process copies the bytes, such as a worker of an
// io_uring. The same is true if the kernel waits for the read when the process ends, as it does for
// io_submit.
func TestReadsInFlightEndBeforeGone(t *testing.T) {
	kills := proctest.Rounds(1, 5)
	for name, c := range map[string]struct {
		shm bool
		r   busyReader
	}{
		"tmpfs, io_uring":                {true, busyReader{By: "io_uring"}},
		"tmpfs, io_uring, by a worker":   {true, busyReader{By: "io_uring, by a worker"}},
		"file, io_uring":                 {false, busyReader{By: "io_uring"}},
		"file, io_uring, by a worker":    {false, busyReader{By: "io_uring, by a worker"}},
		"file, io_submit, with O_DIRECT": {false, busyReader{By: "io_submit", Direct: true, KernelIO: KernelIOAsynchronous}},
		"tmpfs, pread":                   {true, busyReader{By: "pread"}},
		"tmpfs, pread, asynchronous":     {true, busyReader{By: "pread", KernelIO: KernelIOAsynchronous}},
		"file, pread, with O_DIRECT":     {false, busyReader{By: "pread", Direct: true}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shm.Dir
			if !c.shm {
				dir = proctest.DirNotOn(t, unix.TMPFS_MAGIC, unix.RAMFS_MAGIC)
			}
			c.r.Size = 32 << 20
			require.Zero(t, lateStores(t, dir, c.r, kills), "of %d kills", kills)
		})
	}
}

// TestDirectReadsOfARingOutliveTheProcess: the kernel closes the io_uring of a dead process in the
// background, and does not wait for its reads with O_DIRECT. So the device may store into the arena
// after the process is gone, as docs/memory-model.md says. If the device is slow enough, this test
// shows that it happens.
func TestDirectReadsOfARingOutliveTheProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a run without -short: it shows a limit of the kernel, not a property of the library")
	}
	late := 0
	for kills := 0; late == 0 && kills < 20; kills += 5 {
		late = lateStores(t, proctest.DirNotOn(t, unix.TMPFS_MAGIC, unix.RAMFS_MAGIC), busyReader{By: "io_uring", Direct: true, Size: busyParts << 20}, 5)
	}
	if late == 0 {
		t.Skip("needs a slower device: no read was in flight after the end of its process")
	}
	require.Positive(t, late)
	t.Logf("%d of 5 kills stored after Gone", late)
}
