//go:build linux && amd64

package stepkill_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/ccache"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/stepkill"
	"github.com/shmsync/shmsync/shm"
)

// sceneInC has two arguments of testdata/process.c: the object that the victim of a scene uses, and what the victim
// does with the object.
type sceneInC struct{ object, does string }

// addSceneInC adds the scene s, but with a victim in C. All other processes of the scene stay Go programs.
func addSceneInC(s scene, object, does string) {
	s.name, s.c = "c "+s.name, &sceneInC{object, does}
	addScene(s)
}

// builtInC holds the compiled testdata/process.c. The file was unlinked, so nothing has to remove it.
var builtInC struct {
	once sync.Once
	f    *os.File // nil without a C compiler
	err  error
}

// processInC returns the path of the program of the scenes in C, or "" if there is no C compiler.
func processInC(t *testing.T) string {
	t.Helper()
	builtInC.once.Do(func() {
		cc := ""
		for _, name := range []string{os.Getenv("CC"), "cc", "gcc", "clang"} {
			if path, err := exec.LookPath(name); name != "" && err == nil && cc == "" {
				cc = path
			}
		}
		if cc == "" {
			return
		}
		optimize := "-O1"
		if _, all := kills(); all {
			optimize = "-O2" // compiling with -O2 takes twice as long
		} else if proctest.Quick() {
			optimize = "-O0"
		}
		builtInC.f, builtInC.err = compileInC(cc, optimize)
	})
	require.NoError(t, builtInC.err)
	if builtInC.f == nil {
		require.Empty(t, os.Getenv("SHMSYNC_NEED_CC"), "there is no C compiler")
		proctest.LeaveOut(t, "process in C")
		return ""
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), builtInC.f.Fd())
}

func compileInC(cc, optimize string) (*os.File, error) {
	dir, err := os.MkdirTemp("", "stepkill")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "process")
	args := append([]string{"-std=c11", "-g", optimize, "-I" + filepath.Join("..", "..", "include")}, strings.Fields(os.Getenv("SHMSYNC_CINTEROP_CFLAGS"))...)
	if err := ccache.Compile(cc, append(args, filepath.Join("testdata", "process.c"), "-pthread"), path); err != nil {
		return nil, err
	}
	return os.Open(path)
}

func init() {
	// The helper process replaces itself by the program in C. The program exchanges the same messages with its parent
	// as a helper process in Go does.
	proctest.Register("process in C", func(c *proctest.Child) {
		var args []string
		c.Params(&args)
		c.Fatal(syscall.Exec(args[0], args, os.Environ()))
	})
}

// startC starts the victim of a scene in C.
func (x *stage) startC(name, does string, control *os.File) *proctest.Proc {
	x.t.Helper()
	return x.startWith("process in C", []string{processInC(x.t), name, x.s.c.object, does}, control)
}

// reviveInC writes an image to a file of its own, which a newcomer in C joins. The newcomer finds the data whole,
// changes it, and leaves an arena in which nothing of the dead participants is left.
func (x *stage) reviveInC(image []byte, what string) {
	t := x.t
	t.Helper()
	if x.s.newcomer == "" || processInC(t) == "" {
		return
	}
	name := fmt.Sprintf("shmsync-test-image-%d-%d-c", os.Getpid(), time.Now().UnixNano())
	defer shm.Remove(name)
	require.NoError(t, stepkill.WriteImage("/dev/shm/"+name, image))
	out, err := exec.Command(processInC(t), name, x.s.newcomer, "check").CombinedOutput()
	require.NoError(t, err, "%s, %s, a newcomer in C: %s", x.s.name, what, out)
	a, err := arena.Attach(name, &arena.Options{Label: "newcomer"})
	require.NoError(t, err, what)
	sound(t, a, x.s.name+", "+what+", after a newcomer in C")
	require.Zero(t, a.Stats().Claimed, "%s, %s, after a newcomer in C: blocks of the dead", x.s.name, what)
	require.NoError(t, a.Close(), what)
}
