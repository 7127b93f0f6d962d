//go:build linux

package cinterop

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// stormEnv is the environment variable with the name of the arena, for a process of
// TestRestartStormOfTwoLanguages.
const stormEnv = "SHMSYNC_TEST_STORM"

// stormProgram is one version of the program of the fleet. Its fields are the parameters that the program requires of
// the arena and of its objects.
type stormProgram struct {
	size    int64
	version uint64 // version of the type of the counter
	permits int64  // the parameter of a Semaphore
}

// stormer is a process of the fleet in Go. testdata/storm.c is the same in C.
type stormer struct {
	name    string
	a       *arena.Arena
	mutex   *prims.Mutex
	counter []byte
}

// stormCounter returns the last 8 bytes of the counter that has the given version. These bytes are the count.
func stormCounter(a *arena.Arena, version uint64) ([]byte, error) {
	b, err := a.Block(fmt.Sprint("counter ", version), 8*version)
	if err != nil {
		return nil, err
	}
	return b[8*version-8:], nil
}

// upgrade changes the objects to what this version of the program requires. The counts are kept.
func (p stormProgram) upgrade(a *arena.Arena, _ arena.Epoch) error {
	if _, err := prims.RecoverAll(a, func(prims.Lost) error { return nil }); err != nil {
		return err
	}
	if s, err := prims.OpenSemaphore(a, "permits", p.permits, nil); err == nil {
		s.Close()
	} else if err := a.Delete("permits"); err != nil {
		return err
	}
	is, err := a.Block("version", 8)
	if err != nil {
		return err
	}
	had := binary.NativeEndian.Uint64(is)
	if had == p.version {
		return nil
	}
	now, err := stormCounter(a, p.version)
	if err == nil && had != 0 {
		var old []byte
		if old, err = stormCounter(a, had); err == nil {
			copy(now, old)
		}
	}
	if err == nil {
		binary.NativeEndian.PutUint64(is, p.version)
	}
	return err
}

func (s *stormer) open(p stormProgram) (err error) {
	s.a, err = arena.Open(s.name, &arena.Options{
		Size: p.size, MaxParticipants: 16, Recreate: arena.RecreateIncompatible, OnFirst: p.upgrade,
	})
	if err != nil {
		return err
	}
	_, err = prims.OpenSemaphore(s.a, "permits", p.permits, nil)
	if err == nil {
		var is []byte
		is, err = s.a.Block("version", 8)
		if had := binary.NativeEndian.Uint64(is); err == nil && had != p.version {
			err = fmt.Errorf("the counter is of version %d", had)
		}
	}
	if err == nil {
		s.counter, err = stormCounter(s.a, p.version)
	}
	if err == nil {
		s.mutex, err = prims.OpenMutex(s.a, "mutex", nil)
	}
	if err != nil {
		s.a.Close()
	}
	return err
}

func (s *stormer) lock() error {
	err := s.mutex.LockContext(context.Background())
	if errors.Is(err, shmsync.ErrOwnerDead) {
		if err = s.mutex.Recover(func() error { return nil }); err == nil {
			err = s.mutex.LockContext(context.Background())
		}
	}
	return err
}

func (s *stormer) do(line string) (n uint64, err error) {
	var p stormProgram
	switch line {
	case "count":
		if err = s.lock(); err == nil {
			n = binary.NativeEndian.Uint64(s.counter) + 1
			binary.NativeEndian.PutUint64(s.counter, n)
			s.mutex.Unlock()
		}
	case "lock":
		err = s.lock()
	case "close":
		err = s.a.Close()
	default:
		if _, err = fmt.Sscanf(line, "open %d %d %d", &p.size, &p.version, &p.permits); err == nil {
			err = s.open(p)
		}
	}
	return n, err
}

// runStormer is the main function of a Go process of the fleet.
func runStormer(name string) {
	s := &stormer{name: name}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if n, err := s.do(lines.Text()); err != nil {
			fmt.Println("no", strings.ReplaceAll(err.Error(), "\n", "; "))
		} else {
			fmt.Println("ok", n)
		}
	}
	os.Exit(0)
}

// remoteStormer is a process of the fleet as the test sees it.
type remoteStormer struct {
	cmd   *exec.Cmd
	in    *os.File
	out   *bufio.Scanner
	limit *time.Timer
	is    *stormProgram // nil if the process is not in
	locks bool
}

func startStormer(t *testing.T, name string, c bool) *remoteStormer {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	if c {
		cmd = exec.Command(program(t, "storm.c"), name)
	}
	cmd.Env = append(os.Environ(), stormEnv+"="+name)
	cmd.Stderr = os.Stderr
	in, w, err := os.Pipe()
	require.NoError(t, err)
	r, out, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdin, cmd.Stdout = in, out
	require.NoError(t, cmd.Start())
	in.Close()
	out.Close()
	p := &remoteStormer{cmd: cmd, in: w, out: bufio.NewScanner(r)}
	p.limit = time.AfterFunc(proctest.Scale(3*time.Minute), func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		p.limit.Stop()
		p.kill()
		w.Close()
		r.Close()
	})
	return p
}

func (p *remoteStormer) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// do gives an order, and returns the answer: a number, or why the order failed.
func (p *remoteStormer) do(t *testing.T, format string, args ...any) (n int64, why string) {
	fmt.Fprintf(p.in, format+"\n", args...)
	require.True(t, p.out.Scan(), "the process has ended or hangs")
	line := p.out.Text()
	if _, err := fmt.Sscanf(line, "ok %d", &n); err != nil {
		return 0, line
	}
	return n, ""
}

// A fleet of processes in Go and C is killed, closed, restarted and upgraded. An upgrade changes the size of the arena,
// the type of an object, or another parameter of an object. Sometimes the test changes the layout version in the file
// first, as if programs of another layout had used the arena. An upgrade never fails while no process is in the arena.
// At any time, all processes that have joined are in the same arena. No count is lost until an arena of another size or
// layout replaces the old one.
func TestRestartStormOfTwoLanguages(t *testing.T) {
	const fleet = 5
	steps, seed := proctest.Rounds(220, 1000), rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	name := unusedName(t)
	programs := []stormProgram{{2 << 20, 1, 3}, {2 << 20, 2, 3}, {2 << 20, 2, 2}, {2 << 20, 1, 2}, {4 << 20, 1, 2}, {4 << 20, 2, 2}}
	var procs [fleet]*remoteStormer
	var is *stormProgram // the version for which the arena was made; nil without an arena, or for another layout
	counted, refused, upgraded, replaced := int64(0), 0, 0, 0
	in := func() (n int) {
		for _, p := range procs {
			if p != nil && p.is != nil {
				n++
			}
		}
		return n
	}
	free := func() { // kill the processes that hold the lock, so that it becomes free
		for j, p := range procs {
			if p != nil && p.locks {
				p.kill()
				procs[j] = nil
			}
		}
	}
	for step := range steps {
		at := fmt.Sprintf("seed %d, step %d", seed, step)
		i := rng.IntN(fleet)
		if procs[i] == nil {
			procs[i] = startStormer(t, name, i%2 == 1)
		}
		switch p, k := procs[i], rng.IntN(10); {
		case p.is == nil:
			if in() == 0 && is != nil && rng.IntN(8) == 0 { // pretend that programs of another layout were here
				f, err := os.OpenFile(filepath.Join(shm.Dir, name), os.O_RDWR, 0)
				require.NoError(t, err, at)
				_, err = f.WriteAt([]byte{99}, 12)
				require.NoError(t, err, at)
				f.Close()
				is = nil
			}
			want := programs[(step/20+rng.IntN(8)/7)%len(programs)]
			_, why := p.do(t, "open %d %d %d", want.size, want.version, want.permits)
			if why != "" {
				require.NotZero(t, in(), "%s: no process is in, and the upgrade to %v fails: %s", at, want, why)
				require.NotEqual(t, *is, want, "%s: %s", at, why)
				refused++
				break
			}
			switch {
			case is == nil || is.size != want.size:
				require.Zero(t, in(), at)
				counted = 0
				replaced++
			case *is != want:
				require.Zero(t, in(), at)
				upgraded++
			}
			p.is, is = &want, &want
		case k == 0:
			p.kill()
			procs[i] = nil
		case k == 1 && !p.locks:
			_, why := p.do(t, "close")
			require.Empty(t, why, at)
			p.is = nil
		case k == 2: // all processes
			for j, q := range procs {
				if q != nil {
					q.kill()
					procs[j] = nil
				}
			}
		case k == 3:
			if free(); procs[i] == nil {
				break
			}
			_, why := p.do(t, "lock")
			require.Empty(t, why, at)
			p.locks = true
		default:
			if free(); procs[i] == nil {
				break
			}
			n, why := p.do(t, "count")
			require.Empty(t, why, at)
			counted++
			require.Equal(t, counted, n, at)
		}
	}
	t.Logf("seed %d: %d steps, %d replaced, %d upgraded, %d refused", seed, steps, replaced, upgraded, refused)
}
