//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/cmd/shmgen/internal/every"
	"github.com/shmsync/shmsync/internal/ccache"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func TestMain(m *testing.M) { proctest.Main(m) }

var warnings = []string{"-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror"}

// compiler returns the path of the first C compiler that this machine has: $CC, or one of the given names. If there is
// no compiler, it skips the test.
func compiler(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range append([]string{os.Getenv("CC")}, names...) {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	require.Empty(t, os.Getenv("SHMSYNC_NEED_CC"), "there is no %v", names)
	proctest.Skip(t, fmt.Sprintf("needs one of %v", names), "shmgen/victim")
	return ""
}

// headers returns the directories of the generated headers, and of shmsync.h.
func headers(t *testing.T) (here, include string) {
	t.Helper()
	here, err := filepath.Abs(filepath.Join("internal", "every"))
	require.NoError(t, err)
	include, err = filepath.Abs(filepath.Join("..", "..", "include"))
	require.NoError(t, err)
	return here, include
}

func cc(t *testing.T, command string, args ...string) {
	t.Helper()
	here, include := headers(t)
	args = append(args, "-I", here, "-I", include)
	out, err := exec.Command(command, args...).CombinedOutput()
	require.NoError(t, err, "%s %q\n%s", command, args, out)
}

// Every compiler of this machine compiles the header without a warning, as C11 and as C++17, even after another
// header that declares the same types.
func TestHeaderCompiles(t *testing.T) {
	dir := t.TempDir()
	text := "#include \"every_shm.h\"\n#include \"other_shm.h\"\nint use(const struct every *p);\nint use(const struct every *p) { return p->i32; }\n"
	var stderr strings.Builder
	require.Zero(t, realMain([]string{"-type", "Every,Small", "-o", filepath.Join(dir, "other_shm.h"), "./internal/every"}, os.Stdout, &stderr), stderr.String())
	for command, std := range map[string]string{"gcc": "c11", "clang": "c11", "g++": "c++17", "clang++": "c++17"} {
		t.Run(command, func(t *testing.T) {
			path := proctest.Program(t, command)
			source := filepath.Join(dir, "use"+map[string]string{"c11": ".c", "c++17": ".cc"}[std])
			require.NoError(t, os.WriteFile(source, []byte(text), 0o600))
			cc(t, path, append(warnings, "-std="+std, "-I", dir, "-c", source, "-o", filepath.Join(dir, "use.o"))...)
		})
	}
}

// peer is a C process.
type peer struct {
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Scanner
}

// buildPeer compiles the C program of the tests.
func buildPeer(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "peer")
	here, include := headers(t)
	require.NoError(t, ccache.Compile(compiler(t, "cc", "gcc", "clang"), append(warnings[:len(warnings):len(warnings)], "-std=c11", "-O1",
		filepath.Join("testdata", "peer.c"), "-pthread", "-I", here, "-I", include), path))
	return path
}

func startPeer(t *testing.T, path, arena string) *peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), proctest.Scale(5*time.Minute))
	t.Cleanup(cancel)
	p := &peer{cmd: exec.CommandContext(ctx, path, arena)}
	p.cmd.Stderr = os.Stderr
	in, to, err := os.Pipe()
	require.NoError(t, err)
	p.cmd.Stdin, p.in = in, to
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	require.NoError(t, in.Close())
	p.out = bufio.NewScanner(out)
	p.out.Buffer(nil, 1<<20)
	t.Cleanup(func() {
		p.in.Close()
		p.cmd.Process.Kill()
		p.cmd.Wait()
	})
	return p
}

// ask sends a command and returns the answer.
func (p *peer) ask(t *testing.T, format string, args ...any) string {
	t.Helper()
	_, err := fmt.Fprintf(p.in, format+"\n", args...)
	require.NoError(t, err)
	require.True(t, p.out.Scan(), "the C program has ended: %v", p.out.Err())
	return p.out.Text()
}

func (p *peer) ok(t *testing.T, format string, args ...any) {
	t.Helper()
	require.Equal(t, "ok", p.ask(t, format, args...))
}

func (p *peer) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Kill())
	p.cmd.Wait()
}

// fill sets the same values as the function fill in testdata/peer.c.
func fill(v *every.Every, s int) {
	v.I8, v.I16, v.I32, v.I64, v.Int = int8(-s), int16(-300*s), int32(-70000*s), -5000000000*int64(s), int(5000000000*int64(s))
	v.U8, v.U16, v.U32, v.U64, v.Uint = uint8(200+s), uint16(60000+s), 4000000000+uint32(s), 1<<63|uint64(s), uint(1<<62|uint64(s))
	v.F32, v.F64, v.Flag = 0.5*float32(s), 0.125*float64(s), s%2 == 1
	v.C64, v.C128 = complex(float32(s), -2.5), complex(float64(s), -7.25)
	v.Name = [16]byte{}
	copy(v.Name[:], fmt.Sprintf("name %d", s))
	for i := range v.Grid {
		for j := range v.Grid[i] {
			v.Grid[i][j] = int32(s * (10*i + j))
		}
	}
	v.Block, v.State, v.Took = arena.Offset(4096*s), every.State(s), time.Duration(s)*time.Second
	v.Hits.Store(uint64(s + 40))
	v.Level.Store(int32(100 - 200*s))
	v.Balance.Store(-9000000000 * int64(s))
	v.Mask.Store(1<<31 | uint32(s))
	v.Ready.Store(s%2 == 1)
	for i := range v.Cells {
		v.Cells[i].Store(uint32(s * i))
	}
	v.Where = every.Point{X: int16(s), Y: int16(-s)}
	for i := range v.Path {
		v.Path[i] = every.Point{X: int16(i * s), Y: int16(i - s)}
	}
	v.Range = every.Pair[float32]{First: 0.25, Second: float32(s)}
	v.UserID, v.Category = uint32(77*s), uint16(7*s)
	v.Inner.A, v.Inner.B = uint8(s), 1000000000000*uint64(s)
	v.Stamp.Author = uint32(s + 1)
	v.Stamp.Edits.Store(uint32(s + 2))
	v.Last = uint8(250 - s)
}

// requireFilled compares every field with the value that fill sets.
func requireFilled(t *testing.T, s int, got *every.Every) {
	t.Helper()
	var want every.Every
	fill(&want, s)
	w, g := reflect.ValueOf(&want).Elem(), reflect.ValueOf(got).Elem()
	for i := range w.NumField() {
		if w.Type().Field(i).Name == "_" {
			continue
		}
		require.Equal(t, w.Field(i).Addr().Interface(), g.Field(i).Addr().Interface(), w.Type().Field(i).Name)
	}
}

func newArena(t *testing.T) (name string, a *arena.Arena) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "arena")
	a, err := arena.Create(name, &arena.Options{Size: 4 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { a.Close() })
	return name, a
}

// TestWithC runs the tests that need the C program, which takes seconds to compile.
func TestWithC(t *testing.T) {
	path := buildPeer(t)
	t.Run("round trip", func(t *testing.T) { testRoundTrip(t, path) })
	t.Run("disagreement", func(t *testing.T) { testDisagreementNamesTheField(t, path) })
	t.Run("damage", func(t *testing.T) { testDamagedDescription(t, path) })
	t.Run("differences", func(t *testing.T) { testDifferencesInC(t, path) })
}

// A field of each kind has the same value in both languages, in each kind of object.
func testRoundTrip(t *testing.T, path string) {
	t.Run("value", func(t *testing.T) {
		name, a := newArena(t)
		c := startPeer(t, path, name)
		v, err := arena.Value[every.Every](a, "v")
		require.NoError(t, err)
		fill(v, 1)
		c.ok(t, "attach v")
		for f := range reflect.TypeFor[every.Every]().Fields() {
			if f.Name != "_" {
				t.Run(f.Name, func(t *testing.T) {
					c.ok(t, "same %s 1", f.Name)
					require.Equal(t, "differs", c.ask(t, "same %s 4", f.Name))
				})
			}
		}
		c.ok(t, "fill v 2")
		requireFilled(t, 2, v)
		c.kill(t)
		requireFilled(t, 2, v) // a value survives its writer
		c = startPeer(t, path, name)
		c.ok(t, "value v")
		c.ok(t, "same all 2")
	})
	t.Run("block", func(t *testing.T) {
		name, a := newArena(t)
		c := startPeer(t, path, name)
		off, err := a.Alloc(uint64(reflect.TypeFor[every.Every]().Size()), 0)
		require.NoError(t, err)
		v := arena.At[every.Every](a, off)
		fill(v, 3)
		c.ok(t, "block.same %d 3", off)
		c.ok(t, "block.fill %d 4", off)
		requireFilled(t, 4, v)
		var theirs uint64
		_, err = fmt.Sscan(c.ask(t, "block.alloc x 3"), &theirs)
		require.NoError(t, err)
		_, err = arena.TryAt[[3]every.Every](a, arena.Offset(theirs))
		require.NoError(t, err)
		require.Contains(t, c.ask(t, "block.alloc x -1"), "arena.alloc")
	})
	t.Run("synchronized", func(t *testing.T) {
		name, a := newArena(t)
		c := startPeer(t, path, name)
		c.ok(t, "sync s 1")
		s, err := prims.OpenSynchronized(a, "s", every.Every{}, nil)
		require.NoError(t, err)
		got := new(every.Every)
		s.LoadInto(got)
		requireFilled(t, 1, got)
		require.NoError(t, s.UpdateContext(t.Context(), func(v *every.Every) error { fill(v, 2); return nil }))
		c.ok(t, "sync.same s 2")
		c.ok(t, "sync.store s 3")
		s.LoadInto(got)
		requireFilled(t, 3, got)

		c.ok(t, "sync.begin s 4")
		c.kill(t) // within an update
		require.NoError(t, s.ViewContext(t.Context(), func(v *every.Every) error { requireFilled(t, 3, v); return nil }))
		c = startPeer(t, path, name)
		c.ok(t, "sync s 9")
		victim := proctest.Start(t, "shmgen/victim", proctest.Params(map[string]string{"Name": name, "Do": "update"}))
		victim.Await(t)
		victim.Kill(t)
		c.ok(t, "sync.begin s 6")
		c.ok(t, "sync.commit s")
		s.LoadInto(got)
		requireFilled(t, 6, got)
	})
	t.Run("queue", func(t *testing.T) {
		name, a := newArena(t)
		c := startPeer(t, path, name)
		c.ok(t, "queue q")
		q, err := prims.OpenQueue[every.Every](a, "q", 4, nil)
		require.NoError(t, err)
		item := new(every.Every)
		fill(item, 1)
		put(t, q, item)
		c.ok(t, "queue.same q 1")
		c.ok(t, "queue.put q 2")
		c.ok(t, "queue.lease q 2")
		c.kill(t) // the process dies while it leases the item
		l, err := q.LeaseContext(t.Context())
		require.NoError(t, err)
		requireFilled(t, 2, &l.Item)
		require.EqualValues(t, 1, l.Attempts)
		l.Nack()
		victim := proctest.Start(t, "shmgen/victim", proctest.Params(map[string]string{"Name": name, "Do": "lease"}))
		victim.Await(t)
		victim.Kill(t)
		c = startPeer(t, path, name)
		c.ok(t, "queue q")
		c.ok(t, "queue.same q 2")
	})
}

// put puts a copy of an item into a queue.
func put[T any](t *testing.T, q *prims.Queue[T], item *T) {
	t.Helper()
	require.NoError(t, q.PutContext(t.Context(), *item))
}

func init() {
	proctest.Register("shmgen/victim", func(c *proctest.Child) {
		var q struct{ Name, Do string }
		c.Params(&q)
		a, err := arena.Attach(q.Name, nil)
		if err != nil {
			c.Fatal(err)
		}
		switch q.Do {
		case "update":
			s, err := prims.AttachSynchronized[every.Every](a, "s", nil)
			if err != nil {
				c.Fatal(err)
			}
			s.Update(func(v *every.Every) error {
				fill(v, 5)
				c.Ready()
				c.Await() // until the kill
				return nil
			})
		case "lease":
			q, err := prims.AttachQueue[every.Every](a, "q", nil)
			if err != nil {
				c.Fatal(err)
			}
			if _, err := q.Lease(); err != nil {
				c.Fatal(err)
			}
			c.Ready()
			c.Await() // until the kill
		}
	})
}

// changed is a different version of every.Small: a field has another type, and a field is new.
type changed struct {
	Key   uint32
	Where struct{ X, Y int16 }
	Extra uint64
}

// moved is every.Small with the fields X and Y in the opposite order.
type moved struct {
	Key   uint64
	Where struct{ Y, X int16 }
}

const differs = "field Key is uint32 at 0 in the arena, and uint64 at 0 in this program, and field Extra, uint64 at 8, is in the arena only, and 2 more fields have moved"

// testDisagreementNamesTheField checks the error if a program opens an object with another type than the object has.
// The error names the field that differs, in C and in Go and for each kind of object.
func testDisagreementNamesTheField(t *testing.T, path string) {
	name, a := newArena(t)
	_, err := arena.Value[changed](a, "v")
	require.NoError(t, err)
	_, err = prims.OpenSynchronized(a, "s", changed{}, nil)
	require.NoError(t, err)
	_, err = prims.OpenQueue[changed](a, "q", 4, nil)
	require.NoError(t, err)
	c := startPeer(t, path, name)
	for _, command := range []string{"small v", "small.sync s", "small.queue q"} {
		require.Contains(t, c.ask(t, command), differs)
	}
	in := fmt.Sprintf(" (pid %d, slot 1.1) is in: end it and start again", os.Getpid())
	require.Regexp(t, "a Go program keeps them by prims.UpgradeSynchronized in OnFirst, which runs only while no other process is in; .*"+regexp.QuoteMeta(in), c.ask(t, "small.sync s"))
	require.Regexp(t, "arena.Upgrade in OnFirst, .*"+regexp.QuoteMeta(in), c.ask(t, "small v"))
	require.Regexp(t, "; if a newer program made it, start that one; otherwise shmsync_delete drops its contents$", c.ask(t, "small.queue q"))
	require.Regexp(t, "it is a Queue, asked for a Synchronized$", c.ask(t, "small.sync q"))
	_, err = arena.Value[every.Small](a, "v")
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, differs)
	_, err = prims.OpenSynchronized(a, "s", every.Small{}, nil)
	require.ErrorContains(t, err, differs)
	_, err = prims.OpenQueue[every.Small](a, "q", 4, nil)
	require.ErrorContains(t, err, differs)

	c.ok(t, "small ours")
	_, err = arena.Value[changed](a, "ours")
	require.ErrorContains(t, err, "field Key is uint64 at 0 in the arena, and uint32 at 0 in this program, and field Extra, uint64 at 8, is in this program only, and 2 more fields have moved")
	_, err = arena.Value[moved](a, "ours")
	require.ErrorContains(t, err, "field Where.Y is int16 at 10 in the arena, and int16 at 8 in this program, and 1 more field has moved")
}

// testDamagedDescription checks a C program that opens an object after a peer has overwritten the length of the type
// description. The program reports a length that is too large as damage. Otherwise it ignores the description, and
// compares the fingerprints of the types.
func testDamagedDescription(t *testing.T, path string) {
	name, a := newArena(t)
	_, err := arena.Value[every.Small](a, "good")
	require.NoError(t, err)
	_, err = arena.Value[changed](a, "v")
	require.NoError(t, err)
	c := startPeer(t, path, name)
	c.ok(t, "small good")
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	const lengthAt = 44 // offset in the object header, see docs/abi.md
	for o := range a.Objects() {
		for _, n := range []uint32{0, 1, 40, 4095} {
			_, err = f.WriteAt(binary.LittleEndian.AppendUint32(nil, n), int64(o.Offset)+lengthAt)
			require.NoError(t, err)
			answer := c.ask(t, "small %s", o.Name)
			switch {
			case n == 4095:
				require.Contains(t, answer, "length of the description of its type")
			case o.Name == "good":
				require.Equal(t, "ok", answer)
			default:
				require.Contains(t, answer, "fingerprint")
			}
		}
	}
}
