//go:build linux && amd64

package stepkill_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/stepkill"
	"github.com/shmsync/shmsync/shm"
)

// bury puts an image into a file of its own and has a newcomer join it, which buries all
// who are in it, and is killed so long after it has begun, or, if that is negative, when
// it is done. It returns the bytes after that, and how long the newcomer was at it. It
// is not stepped: a join takes more instructions than an operation.
func (x *stage) bury(image []byte, after time.Duration) ([]byte, time.Duration) {
	t := x.t
	t.Helper()
	name := fmt.Sprintf("shmsync-test-burial-%d-%d", os.Getpid(), time.Now().UnixNano())
	path := "/dev/shm/" + name
	defer shm.Remove(name)
	require.NoError(t, stepkill.WriteImage(path, image))
	ctl, f, err := stepkill.NewControl()
	require.NoError(t, err)
	defer f.Close()
	heir := proctest.Start(t, "victim", proctest.Files(f),
		proctest.Params(victimParams{Arena: name, Scene: "arena/join", Object: object}), proctest.Env("GOMAXPROCS=2"))
	heir.Await(t)
	ctl.Gate.Store(1)
	for ctl.Began.Load() == 0 {
	}
	begun := time.Now()
	for end := begun.Add(proctest.Scale(limit)); ctl.Ended.Load() == 0 && (after < 0 || time.Since(begun) < after); {
		if time.Now().After(end) {
			t.Fatalf("%s: the burial does not end: %v", x.s.name, heir.Kill(t))
		}
	}
	took := time.Since(begun)
	heir.Signal(t, syscall.SIGKILL)
	heir.WaitSignal(t, syscall.SIGKILL)
	bytes, err := os.ReadFile(path)
	require.NoError(t, err)
	return bytes, took
}

// All have died in an operation; who comes dies over their burial, and so does the next
// one. The one after that finds everything usable.
func TestBurialKills(t *testing.T) {
	n, _ := kills()
	eachScene(t, func(x *stage) stats {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 5))
		x.t.Logf("seed %#x", seed)
		// Some of the images, all with the same chance.
		var chosen [][]byte
		seen := 0
		x.images(func(image []byte, _ int) {
			if seen++; len(chosen) < n {
				chosen = append(chosen, image)
			} else if i := random.IntN(seen); i < n {
				chosen[i] = image
			}
		})
		var whole time.Duration
		for i, image := range chosen {
			if _, took := x.bury(image, -1); whole == 0 || took < whole {
				whole = took
			}
			var at [2]time.Duration
			for heir := range at {
				at[heir] = time.Duration(random.Int64N(int64(whole)))
				image, _ = x.bury(image, at[heir])
				x.limit.kills++
			}
			what := fmt.Sprintf("image %d, its heirs killed after %v of %v", i, at, whole)
			x.t.Log(what)
			x.revive(image, what)
			x.limit.states++
		}
		return x.limit
	})
}
