//go:build linux

package cinterop

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/race"
)

var updateVectors = flag.Bool("update", false, "write the images of testdata/vectors")

// A vector is the bytes of an object in a defined state. The calls in vector.make produce these bytes in both
// languages. From these bytes, the calls in vector.then have the same results in both languages.
type vector struct {
	kind string // the kind of the verbs
	name string // the name of the file
	make []call
	then []call
}

// call is a verb with its arguments, and its result.
type call struct {
	verb string
	args []any
	err  syscall.Errno
	n    uint64
}

func do(verb string, args ...any) call              { return call{verb: verb, args: args} }
func gives(n uint64, verb string, args ...any) call { return call{verb: verb, args: args, n: n} }
func refuses(err syscall.Errno, verb string, args ...any) call {
	return call{verb: verb, args: args, err: err}
}
func (c call) String() string { return fmt.Sprint(c.verb, c.args) }
func (v vector) file() string { return filepath.Join("testdata", "vectors", v.name+".hex") }

var vectors = []vector{
	{"seq", "sequencer", []call{do("open"), gives(1, "inc"), gives(1, "advance", 7), do("stop")},
		[]call{gives(7, "value"), do("wait", 7, 0), refuses(syscall.ECANCELED, "wait", 8), gives(8, "inc")}},
	{"event", "event-set", []call{do("open", 2), do("set"), do("reset"), do("set")},
		[]call{gives(1, "isset"), do("wait", 0), refuses(syscall.ETIMEDOUT, "waitreset", 1), do("reset"), do("waitreset", 1)}},
	{"event", "event-token", []call{do("open", 1), do("set"), do("try"), do("set")},
		[]call{gives(1, "isset"), do("try"), refuses(syscall.EBUSY, "try")}},
	{"queue", "queue-items", []call{do("open", 3), do("put", 11), do("put", 22), do("put", 33), gives(11, "get"), do("put", 44)},
		[]call{gives(3, "len"), refuses(syscall.EBUSY, "tryput", 55), gives(22, "get"), gives(33, "lease"), do("nack"), gives(33, "get"), gives(44, "tryget"), refuses(syscall.EBUSY, "tryget")}},
	{"queue", "queue-shut", []call{do("open", 2), do("put", 5), do("shutdown")},
		[]call{refuses(syscall.ECANCELED, "put", 6), gives(5, "get"), refuses(syscall.ECANCELED, "get")}},
	{"wg", "waitgroup", []call{do("open"), do("add", 3), do("done"), do("done"), do("done"), do("add", 1), do("done")},
		[]call{gives(0, "count"), do("wait", 0), do("add", 2), gives(2, "count")}},
	{"latch", "latch-claimed", []call{do("open", 5), do("claim", 2), do("down", 1)},
		[]call{gives(4, "count"), refuses(syscall.EINVAL, "down", 5), do("down", 4), do("wait", 0)}},
	{"latch", "latch", []call{do("open", 5), do("down", 2)},
		[]call{gives(3, "count"), refuses(syscall.EINVAL, "down", 4), do("down", 3), do("wait", 0)}},
	{"once", "once", []call{do("open"), do("nothing")}, []call{gives(1, "isdone"), do("nothing")}},
	{"barrier", "barrier", []call{do("open", 2), gives(0, "arrive", 2), gives(1, "arrive", 1)},
		[]call{do("wait", 0, 0), refuses(syscall.EINVAL, "wait", 2), gives(1, "arrive", 1), do("wait", 1, 0)}},
	{"fair", openVector, []call{do("open", 2), do("lock"), do("unlock")},
		[]call{do("try"), refuses(syscall.EBUSY, "try"), do("unlock"), refuses(syscall.EINVAL, "open", 1)}},
	{"multi", "multilock", []call{do("open", 2, 2), do("lock", 7), do("unlock", 7), do("lock", int64(1<<40)), do("unlock", int64(1<<40)), do("try", 8), do("unlock", 8)},
		[]call{do("try", 7), refuses(syscall.EBUSY, "try", 7), gives(3, "lockall", 8, 3), do("unlockall"), refuses(syscall.EPERM, "staleunlock"), refuses(syscall.EINVAL, "open", 2, 4)}},
	{"multi", "multilock-open", []call{do("open", 0, 1), do("lock", 7), do("unlock", 7), do("lock", 7), do("unlock", 7), do("lock", 7), do("unlock", 7)},
		[]call{do("try", 7), refuses(syscall.EBUSY, "try", 7), do("unlock", 7), do("lock", 7), refuses(syscall.ETIMEDOUT, "lock", 7, 1), do("unlock", 7), refuses(syscall.EPERM, "staleunlock")}},
	{"future", "future", []call{do("open"), do("set", 5)},
		[]call{gives(1, "isset"), gives(5, "wait", 0), refuses(syscall.EBUSY, "set", 6), do("reset"), gives(0, "isset")}},
	{"sem", "semaphore", []call{do("open", 4), do("acquire", 3), do("release", 3)},
		[]call{gives(4, "free"), do("try", 4), refuses(syscall.EBUSY, "try", 1), refuses(syscall.EPERM, "release", 5)}},
	{"rw", "rwmutex", []call{do("open", 1), do("rlock"), do("runlock"), do("lock"), do("unlock")},
		[]call{do("rtry"), refuses(syscall.EBUSY, "try"), do("runlock"), do("try"), refuses(syscall.EBUSY, "rtry")}},
	{"spin", "spinlock", []call{do("open", 1), do("lock"), do("unlock")}, []call{do("try"), refuses(syscall.EBUSY, "try"), do("unlock")}},
	{"rwspin", "rwspinlock", []call{do("open", 1), do("rlock"), do("runlock"), do("lock"), do("down"), do("runlock")},
		[]call{do("rtry"), do("utry"), refuses(syscall.EBUSY, "rtry"), refuses(syscall.EBUSY, "tryup"), do("runlock"), do("tryup")}},
	{"sig", "signalwaker", []call{do("open", 2, 1), gives(1, "schedule", 5), gives(1, "schedule", 70), gives(1, "yield"), gives(5, "next", 0), gives(1, "leaf", 3),
		do("worker", 1), do("inline", 127), do("finish", 127), gives(64, "reserveall", 1, 2), do("count", 8, 9), do("try"), gives(3, "bitset", 0, 63)},
		[]call{gives(2, "summary"), gives(3, "permits"), gives(3, "status"), gives(8, "partition"), gives(1, "workers"), gives(64, "reserved"), gives(6, "state", 5),
			refuses(syscall.EPERM, "finish", 5), refuses(syscall.EBUSY, "inline", 70), gives(1, "mark", 0), gives(70, "next", 90), refuses(syscall.EBUSY, "next", 0),
			gives(64, "nearest", 0, 5), refuses(syscall.EPERM, "unreserve", 64), refuses(syscall.EBUSY, "reserve", 1, 2), do("sync", 0, 2, 1), gives(1, "status"),
			gives(9, "stat", 8), gives(3, "stat", 0), gives(401164200, "health"), do("finish", 70)}},
	{"sync", "synchronized", []call{do("open", 5), do("add", 2), do("fail", 9), do("store", 40), do("add", 1)},
		[]call{gives(41, "load"), gives(3, "commits"), do("add", 1), gives(42, "load"), do("fail", 1), gives(4, "commits"), do("watch", 2)}},
	{"txlog", "mutex-log", []call{do("open"), do("change"), do("change")},
		[]call{do("begin", 0), do("change"), gives(8, "data", 0), gives(9, "data", 1), gives(7, "data", 2)}},
	{"txlog", activeVector, []call{do("open"), do("leave")},
		[]call{do("begin", forever), gives(5, "data", 0), gives(6, "data", 1), gives(7, "data", 2), do("change"), gives(8, "data", 0)}},
	{"cond", "cond", []call{do("open"), do("signal"), do("broadcast")}, []call{refuses(syscall.ETIMEDOUT, "wait", 1)}},
}

// openVector is the vector of a FairMutex whose owner word only the fast path has changed.
const openVector = "fairmutex"

// activeVector is the vector of a mutex whose holder is in a transaction. The holder dies before other processes
// use the bytes.
const activeVector = "mutex-log-active"

// run makes the calls on an object, and returns the offset of the object.
func (x *agent) run(t *testing.T, kind string, calls []call) (offset uint64) {
	t.Helper()
	for _, c := range calls {
		a := x.start(t, kind+"."+c.verb, "x", c.args...).wait(t)
		require.Equal(t, c.err, a.err, "%v in %s\n%s", c, x.lang, x.stderr)
		switch {
		case c.verb == "open":
			offset = a.n
		case c.n != 0 || c.verb == "count" || c.verb == "isset":
			require.Equal(t, c.n, a.n, "%v in %s", c, x.lang)
		}
	}
	return offset
}

// body returns the bytes of an object's body, and a function that writes them.
func body(t *testing.T, arenaName string, offset uint64) (image []byte, write func([]byte)) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join("/dev/shm", arenaName), os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	head := make([]byte, 24)
	_, err = f.ReadAt(head, int64(offset))
	require.NoError(t, err)
	size := 0
	for i := range 8 {
		size |= int(head[16+i]) << (8 * i)
	}
	image = make([]byte, size)
	_, err = f.ReadAt(image, int64(offset)+64)
	require.NoError(t, err)
	return image, func(b []byte) {
		_, err := f.WriteAt(b, int64(offset)+64)
		require.NoError(t, err)
	}
}

// lines renders an image in lines of 32 bytes. Lines of zeros are left out.
func lines(image []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d bytes\n", len(image))
	for at := 0; at < len(image); at += 32 {
		row := image[at:min(at+32, len(image))]
		if strings.Trim(string(row), "\x00") != "" {
			fmt.Fprintf(&b, "%06x %s\n", at, hex.EncodeToString(row))
		}
	}
	return b.String()
}

// parse returns the image that lines has rendered.
func parse(t *testing.T, text string) []byte {
	var size, at int
	rows := strings.Split(strings.TrimSpace(text), "\n")
	_, err := fmt.Sscanf(rows[0], "%d bytes", &size)
	require.NoError(t, err)
	image := make([]byte, size)
	for _, row := range rows[1:] {
		var digits string
		_, err := fmt.Sscanf(row, "%x %s", &at, &digits)
		require.NoError(t, err)
		b, err := hex.DecodeString(digits)
		require.NoError(t, err)
		copy(image[at:], b)
	}
	return image
}

// Both languages produce the bytes of the vector, and get the same results from them.
func TestVectors(t *testing.T) {
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			for _, lang := range []string{"go", "c"} {
				t.Run(lang+"-makes", func(t *testing.T) {
					if race.Enabled && lang == "go" && (v.kind == "multi" || v.name == openVector) {
						t.Skip("needs a build without the race detector: with it, MultiLock and FairMutex have no fast path in Go")
					}
					name := newArena(t)
					x := newAgent(t, lang, name, "x")
					offset := x.run(t, v.kind, v.make)
					image, _ := body(t, name, offset)
					if *updateVectors && lang == "go" {
						require.NoError(t, os.MkdirAll(filepath.Dir(v.file()), 0o755))
						require.NoError(t, os.WriteFile(v.file(), []byte(lines(image)), 0o644))
					}
					want, err := os.ReadFile(v.file())
					require.NoError(t, err)
					require.Equal(t, string(want), lines(image), "%s\n%s", describe(name), arena.Offset(offset))
				})
				t.Run(lang+"-goes-on", func(t *testing.T) {
					text, err := os.ReadFile(v.file())
					require.NoError(t, err)
					name := newArena(t)
					maker := newAgent(t, lang, name, "maker")
					offset := maker.run(t, v.kind, v.make[:1])
					_, write := body(t, name, offset)
					write(parse(t, string(text)))
					if v.name == activeVector {
						maker.kill(t)
					}
					x := newAgent(t, lang, name, "x")
					x.run(t, v.kind, v.then)
				})
			}
		})
	}
}
