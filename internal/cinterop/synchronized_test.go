//go:build linux

package cinterop

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/race"
)

func TestSynchronizedPlain(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "sync.open", "s", 3)
		require.Equal(t, off, s.b.do(t, "sync.open", "s", 4))
		require.EqualValues(t, 3, s.b.do(t, "sync.load", "s"))
		s.b.do(t, "sync.add", "s", 2)
		s.a.do(t, "sync.fail", "s", 50)
		require.EqualValues(t, 5, s.c.do(t, "sync.load", "s"))
		s.c.do(t, "sync.store", "s", 9)
		require.EqualValues(t, 2, s.a.do(t, "sync.commits", "s"))
		s.a.start(t, "wide.open", "s").fails(t, syscall.EINVAL)
		s.a.start(t, "sync.commit", "s").fails(t, syscall.EPERM)

		s.a.do(t, "sync.begin", "s", 1)
		s.b.start(t, "sync.try", "s", 20).fails(t, syscall.ETIMEDOUT)
		if !race.Enabled {
			require.EqualValues(t, 9, s.b.do(t, "sync.load", "s"))
			require.EqualValues(t, 9, s.a.do(t, "sync.load", "s"))
		}
		w := s.b.start(t, "sync.add", "s", 1)
		s.a.do(t, "sync.commit", "s")
		w.must(t)
		require.EqualValues(t, 11, s.c.do(t, "sync.load", "s"))
		s.none(t, off)
	})
}

// A stopped updater delays no Load. A dead updater delays no Update, and its changes are gone.
func TestSynchronizedKilledHolder(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		s.a.do(t, "sync.open", "s", 7)
		s.a.do(t, "sync.begin", "s", 1)
		s.a.stop(t)
		if !race.Enabled {
			s.b.do(t, "sync.watch", "s", 1000)
			s.c.do(t, "sync.watch", "s", 1000)
		}
		w, x := s.b.start(t, "sync.add", "s", 10), s.c.start(t, "sync.add", "s", 100)
		s.a.kill(t)
		w.must(t)
		x.must(t)
		require.EqualValues(t, 117, s.b.do(t, "sync.load", "s"))
	})
}

// killedUpdaters kills a number of updaters at random moments while other processes Load. One updater in ten is
// stopped before it is killed. One in four is killed inside a read(2) into the copy.
func killedUpdaters(t *testing.T, kind, victimLang, survivorLang string, kills int, file string) {
	name := newArena(t)
	x := newAgent(t, survivorLang, name, "survivor")
	x.do(t, kind+".open", "x", 1)
	stopped := 0
	for k := range kills {
		before := x.do(t, kind+".commits", "x")
		v := newAgent(t, victimLang, name, "victim")
		if k%4 == 3 {
			v.start(t, kind+".churn", "x", file)
		} else {
			v.start(t, kind+".churn", "x")
		}
		eventually(t, "it has begun", name, func() bool { return x.do(t, kind+".commits", "x") > before })
		watch := x.start(t, kind+".watch", "x", 2000/len(kind))
		pause := syscall.NsecToTimespec(rand.Int64N(5e5))
		syscall.Nanosleep(&pause, nil)
		if k%10 == 0 && !race.Enabled {
			require.NoError(t, v.cmd.Process.Signal(syscall.SIGSTOP))
			x.do(t, kind+".watch", "x", 200)
			stopped++
		}
		require.NoError(t, v.cmd.Process.Kill())
		was := x.do(t, kind+".load", "x")
		x.do(t, kind+".add", "x", 1)
		require.Greater(t, x.do(t, kind+".load", "x"), was)
		watch.must(t)
		<-v.ended
		v.cmd.Wait()
		v.in.Close()
	}
	x.do(t, kind+".watch", "x", 100)
	sound(t, name)
	t.Logf("%s: %d %s updaters killed, %d of them stopped first, beside Loads in %s: 0 torn", kind, kills, victimLang, stopped, survivorLang)
}

// synchronizedKills returns how many updaters a test kills for each pair of languages.
func synchronizedKills() int {
	if n, err := strconv.Atoi(os.Getenv("SHMSYNC_TEST_SYNCHRONIZED_KILLS")); err == nil {
		return n
	}
	return proctest.Rounds(10, 150)
}

func TestSynchronizedKilledUpdaters(t *testing.T) {
	cAgent(t)
	file := bigFile(t, 8192*8)
	for _, langs := range [][2]string{{"go", "go"}, {"go", "c"}, {"c", "go"}, {"c", "c"}} {
		t.Run(strings.Join(langs[:], "-"), func(t *testing.T) {
			kills := synchronizedKills()
			killedUpdaters(t, "sync", langs[0], langs[1], kills-kills/4, file)
			killedUpdaters(t, "wide", langs[0], langs[1], kills/4, file)
		})
	}
}

// This is the control experiment: if the commit comes before the copy is written, a survivor loads a torn value.
func TestSynchronizedControlTears(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		t.Run(lang, func(t *testing.T) {
			if race.Enabled && lang == "go" {
				t.Skip("needs a build without the race detector: with it, Load locks")
			}
			name := newArena(t)
			x := newAgent(t, lang, name, "survivor")
			x.do(t, "wide.open", "x", 1)
			newAgent(t, "c", name, "victim").start(t, "wide.tear", "x")
			eventually(t, "a torn value is seen", name, func() bool {
				return x.start(t, "wide.watch", "x", 100).wait(t).err == syscall.EILSEQ
			})
		})
	}
}

// The compiler inlines the commit into its caller. It deletes no store of the caller, and moves none across the commit.
// In a second case, a plain store replaces the commit, and the compiler does move or delete stores. So the test would
// notice a missing barrier.
func TestCommitOrderInC(t *testing.T) {
	t.Parallel()
	dir, without := t.TempDir(), t.TempDir()
	h := string(cut(t, "87-synchronized.h", "SHMI_FN void shmi_commit_store", "/* end of the commit */"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "commit.h"), []byte(h), 0o600))
	plain := strings.NewReplacer("__atomic_signal_fence(__ATOMIC_SEQ_CST);", "", "__atomic_store_n(current, n, __ATOMIC_RELEASE)", "*current = n").Replace(h)
	require.NotContains(t, plain, "__atomic")
	require.NoError(t, os.WriteFile(filepath.Join(without, "commit.h"), []byte(plain), 0o600))
	found, mistaken := 0, 0
	for name, command := range map[string]string{
		"gcc, amd64":   "gcc -fcf-protection=none",
		"clang, amd64": "clang --target=x86_64-none-elf",
		"gcc, arm64":   "aarch64-linux-gnu-gcc",
		"clang, arm64": "clang --target=aarch64-none-elf -march=armv8-a",
	} {
		t.Run(name, func(t *testing.T) {
			words := strings.Fields(command)
			if name == "gcc, amd64" && runtime.GOARCH != "amd64" {
				t.Skip("needs a gcc for amd64")
			}
			proctest.Program(t, words[0])
			found++
			listing := func(dir, level string) string {
				args := append(words[1:], "-ffreestanding", level, "-I"+dir, "-S", "-o", "-", filepath.Join("testdata", "commit.c"))
				out, err := exec.Command(words[0], args...).CombinedOutput()
				require.NoError(t, err, "%s", out)
				return string(out)
			}
			for _, level := range []string{"-O1", "-O2", "-O3"} {
				text := listing(dir, level)
				require.Equal(t, "data data commit data", commitOrder(text), "%s\n%s", level, text)
				if commitOrder(listing(without, level)) != "data data commit data" {
					mistaken++
				}
			}
		})
	}
	if found != 0 {
		require.NotZero(t, mistaken, "every compiler keeps the order without the fences")
	}
}

var (
	changeBody  = regexp.MustCompile(`(?s)\nchange:.*?\n\s*ret`)
	dataStore   = regexp.MustCompile(`^(movl\s+\$\d+, \d*\(|str\s+w\d+, \[)`)
	commitStore = regexp.MustCompile(`^(movq\s+%\w+, \(|(incq|addq)\s.*\(|stlr\s|str\s+x\d+, \[)`)
)

// commitOrder returns the order of the stores in the assembly listing of testdata/commit.c.
func commitOrder(listing string) string {
	var order []string
	for line := range strings.Lines(changeBody.FindString(listing)) {
		switch line = strings.TrimSpace(line); {
		case dataStore.MatchString(line):
			order = append(order, "data")
		case commitStore.MatchString(line):
			order = append(order, "commit")
		}
	}
	return strings.Join(order, " ")
}
