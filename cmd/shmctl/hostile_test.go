//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// busyBytes returns the bytes of an arena with an object of each kind. Some of the objects are held and waited for,
// and a participant is gone.
var busyBytes = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "shmctl")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "busy")
	seg, err := shm.CreateAt(path, 1<<20, func(s *shm.Segment) error {
		return arena.Format(s, &arena.Options{MaxParticipants: 8})
	}, nil)
	if err != nil {
		return nil, err
	}
	a, err := arena.FromSegment(seg, &arena.Options{Label: "busy"})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	for _, o := range []struct {
		op string
		n  int64
	}{
		{"lock mutex", 0}, {"lock fair", 0}, {"lock cohort", 0}, {"lock spin", 0}, {"lock rw", 0}, {"lock rwspin", 0}, {"lock multi", 7}, {"lock semaphore", 2},
		{"claim future", 0}, {"add group", 3}, {"put queue", 5}, {"lease queue", 0}, {"wait waitable", 6}, {"claim latch", 1},
	} {
		f, err := agentDeed(a, agentOrder{Op: o.op, Name: strings.Fields(o.op)[1], N: o.n})
		if err != nil {
			return nil, err
		}
		f()
	}
	waits := []agentOrder{}
	for _, op := range []string{"lock mutex", "lock fair", "lock cohort", "lock multi", "lock semaphore", "wait future", "wait group", "wait event", "wait sequencer", "wait futex", "wait latch", "get queue", "rlock rw", "wait waitable", "wait cond", "wait barrier"} {
		o := agentOrder{Op: op, Name: strings.Fields(op)[1], N: 7}
		if o.Name == "semaphore" {
			o.N = 2
		}
		waits = append(waits, o)
	}
	for _, o := range waits {
		f, err := agentDeed(a, o)
		if err != nil {
			return nil, err
		}
		go f()
	}
	if _, err := prims.OpenSynchronized(a, "synchronized", [2]int64{}, nil); err != nil {
		return nil, err
	}
	if _, err := prims.OpenSignalWaker(a, "waker", &prims.SignalWakerOptions{Signals: 2}); err != nil {
		return nil, err
	}
	if _, err := prims.OpenOnce(a, "once", nil); err != nil {
		return nil, err
	}
	if _, err := prims.OpenMutex(a, "", nil); err != nil {
		return nil, err
	}
	if _, err := arena.Value[[4]uint64](a, "value"); err != nil {
		return nil, err
	}
	for end := time.Now().Add(limit); ; {
		ins, err := arenakernel.Inspect(path)
		if err != nil {
			return nil, err
		}
		src := &source{ins: ins}
		n := len(src.look().Waits)
		ins.Close()
		if n >= len(waits) {
			break
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("%d of %d waits are visible after %v", n, len(waits), limit)
		}
	}
	return os.ReadFile(path)
})

func busy(t testing.TB) []byte {
	t.Helper()
	b, err := busyBytes()
	require.NoError(t, err)
	return bytes.Clone(b)
}

// lookers returns the commands that only examine an arena.
func lookers(path string) [][]string {
	return [][]string{
		{"ps", "--gone", path}, {"objects", path}, {"locks", path}, {"waits", path}, {"graph", path}, {"graph", "-f", "svg", path}, {"check", path},
		{"metrics", path}, {"top", "-n", "1", path}, {"show", path, "mutex"}, {"reap", "-n", path}, {"du", path}, {"objects", "-o", "wide", path},
		{"locks", "-o", "wide", path}, {"waits", "-o", "wide", "--older=1ns", path}, {"ps", "-o", "wide", path}, {"objects", "-o", "name", path},
	}
}

// showAll returns the commands that show each object of an arena.
func showAll(path string) (all [][]string) {
	_, out, _ := shmctl("objects", "-o", "name", path)
	for name := range strings.Lines(out) {
		if len(all) == 40 { // the directory of a damaged arena may have very many names
			break
		}
		name = strings.TrimSuffix(name, "\n")
		all = append(all, []string{"show", "--", path, name}, []string{"value", "--", path, name})
	}
	return all
}

// survive runs every command that only examines a file. Each command must end with one of the documented statuses,
// and print no control characters. The file must not change.
func survive(t *testing.T, content []byte) (out string) {
	t.Helper()
	return surviveEach(t, content, 1, 0)
}

// surviveEach is like survive, but runs only every n-th command. The parameter first is the index of the first command
// that runs.
func surviveEach(t *testing.T, content []byte, n, first int) (out string) {
	t.Helper()
	defer func(d time.Duration) { diagnose.ConfirmAfter = d }(diagnose.ConfirmAfter)
	diagnose.ConfirmAfter = time.Millisecond // short, because nothing changes the file between two looks
	path := filepath.Join(t.TempDir(), "arena")
	require.NoError(t, os.WriteFile(path, content, 0o400))
	start := time.Now()
	for i, args := range append(lookers(path), showAll(path)...) {
		if i%n != first {
			continue
		}
		code, stdout, stderr := shmctl(args...)
		require.Contains(t, []int{exitOK, exitMissing, exitTrouble}, code, "%v: %s", args, stderr)
		for _, r := range stdout + stderr {
			require.False(t, r < ' ' && r != '\n' || r == 0x7f || r == 0x9b, "%v prints %q", args, r)
		}
		out += stdout + stderr
		_, stdout, _ = shmctl(append([]string{"--json"}, args...)...)
		if stdout != "" && args[0] != "metrics" {
			var d document
			require.NoError(t, json.Unmarshal([]byte(stdout), &d), args)
		}
	}
	dump := filepath.Join(t.TempDir(), "dump")
	if code, _, _ := shmctl("dump", path, "-o", dump); code == exitOK {
		code, _, stderr := shmctl("waits", dump)
		require.Contains(t, []int{exitOK, exitTrouble}, code, stderr)
	}
	require.Less(t, time.Since(start), 2*limit)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, after))
	return out
}

// Bytes that a correct arena does not contain are reported, and do no harm.
func TestScribbled(t *testing.T) {
	intact := busy(t)
	t.Run("intact", func(t *testing.T) {
		out := survive(t, intact)
		require.NotContains(t, out, "damaged:")
		for _, name := range typeNames { // each kind is there
			require.Contains(t, out, name+" ")
		}
	})
	seeds := proctest.Rounds(3, uint64(30))
	for seed := range seeds {
		t.Run("words", func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			b := bytes.Clone(intact)
			for range 1 + r.IntN(400) {
				scribbleWord(r, b)
			}
			survive(t, b)
		})
	}
	for name, f := range map[string]func(b []byte){
		"header":        func(b []byte) { fill(b[48:160]) },
		"checksum":      func(b []byte) { b[168] ^= 1 },
		"slots":         func(b []byte) { fill(b[4096 : 4096+8*2048]) },
		"death records": func(b []byte) { fill(b[256:264]); fill(b[4096+8*2048 : 4096+8*2048+256*128]) },
		"directory up":  func(b []byte) { fill(b[4096+8*2048+256*128:]) },
		"all ones": func(b []byte) {
			for i := range b[4096:] {
				b[4096+i] = 0xff
			}
		},
		"heap": func(b []byte) { fill(b[131072:]) },
	} {
		t.Run(name, func(t *testing.T) {
			b := bytes.Clone(intact)
			f(b)
			survive(t, b)
			path := filepath.Join(t.TempDir(), "arena")
			require.NoError(t, os.WriteFile(path, b, 0o600))
			code, out, _ := shmctl("check", path)
			require.Equal(t, exitTrouble, code)
			require.Contains(t, out, "is damaged: ")
		})
	}
	t.Run("no arena", func(t *testing.T) {
		out := survive(t, bytes.Repeat([]byte("text\n"), 2000))
		require.Contains(t, out, "no magic number")
		survive(t, intact[:100])
	})
	t.Run("cut off", func(t *testing.T) { require.Contains(t, survive(t, intact[:len(intact)/2]), "bytes long") })
}

var typeNames = []string{
	"Mutex", "RWMutex", "FairMutex", "CohortMutex", "SpinLock", "RWSpinLock", "MultiLock", "Cond", "Semaphore", "Sequencer", "Event", "Futex", "Future",
	"WaitGroup", "Latch", "Barrier", "Once", "Queue", "SignalWaker", "Waitable", "Synchronized", "Value",
}

func fill(b []byte) {
	r := rand.New(rand.NewPCG(7, 7))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// scribbleWord overwrites a word that the arena probably uses. It does not change the immutable part of the header.
func scribbleWord(r *rand.Rand, b []byte) {
	off := 176 + r.IntN(len(b)-176-8)
	for try := 0; try < 50 && binary.LittleEndian.Uint64(b[off&^7:]) == 0; try++ {
		off = 176 + r.IntN(len(b)-176-8)
	}
	off &^= 7
	word := b[max(off, 176):]
	switch r.IntN(6) {
	case 0:
		binary.LittleEndian.PutUint64(word, r.Uint64())
	case 1:
		binary.LittleEndian.PutUint64(word, uint64(r.IntN(len(b)))&^63)
	case 2:
		binary.LittleEndian.PutUint32(word, r.Uint32())
	case 3:
		binary.LittleEndian.PutUint64(word, ^uint64(0)>>r.IntN(64))
	case 4:
		from := r.IntN(len(b)-8) &^ 7
		copy(word[:8], b[from:])
	default:
		word[r.IntN(8)] ^= 1 << r.IntN(8)
	}
}

// FuzzScribbled is TestScribbled with the writes of a fuzzer.
func FuzzScribbled(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	f.Add(bytes.Repeat([]byte{0x40, 0, 2, 0, 255, 255, 255, 255, 255, 255, 255, 255}, 20))
	for _, script := range scripts(f) {
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		b := busy(t)
		// When Go's fuzzer stops, it kills a process that does not end within a second. So each input runs only an
		// eighth of the commands.
		const part = 8
		first := len(script) % part
		for ; len(script) >= 12; script = script[12:] {
			off := int(binary.LittleEndian.Uint32(script)) % (len(b) - 8)
			copy(b[off:], script[4:12])
		}
		surviveEach(t, b, part, first)
	})
}

// scripts returns inputs that write to the words of each object, for example to the counters, the ring and the slot
// records of a Queue.
func scripts(t testing.TB) (all [][]byte) {
	path := filepath.Join(t.TempDir(), "arena")
	require.NoError(t, os.WriteFile(path, busy(t), 0o400))
	ins, err := arenakernel.Inspect(path)
	require.NoError(t, err)
	defer ins.Close()
	for _, o := range ins.Objects() {
		for _, value := range []uint64{1, ^uint64(0)} {
			var script []byte
			for off := uint64(0); off+8 <= min(o.Size, 1024); off += 24 {
				script = binary.LittleEndian.AppendUint32(script, uint32(uint64(o.Body)+off))
				script = binary.LittleEndian.AppendUint64(script, value)
			}
			all = append(all, script)
		}
	}
	return all
}

// A file that shrinks while it is examined is reported, and does not crash shmctl.
func TestCutOffWhileLooking(t *testing.T) {
	path := filepath.Join(t.TempDir(), "arena")
	require.NoError(t, os.WriteFile(path, busy(t), 0o600))
	src, err := open(path)
	require.NoError(t, err)
	defer src.Close()
	require.NoError(t, os.Truncate(path, 8192))
	src.look()
	require.ErrorContains(t, src.ins.Check(), "the file has become shorter")
}

// Labels and names are safe for a terminal, whatever bytes a peer wrote there.
func TestCleanText(t *testing.T) {
	require.Equal(t, "a?[31mb?c?d?é", diagnose.Clean("a\x1b[31mb\u202ec\x00d\u009bé"))
	require.Equal(t, "?", diagnose.Clean("\xff"))
}
