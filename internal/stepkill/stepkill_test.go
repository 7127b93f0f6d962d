//go:build linux && amd64

package stepkill_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shmsync/shmsync/internal/proctest"
)

// kills returns how many kills a test makes in each scene, for each way to choose the moments of the kills, and whether
// all scenes run. SHMSYNC_TEST_STEPKILLS sets the number, and makes all scenes run. Without it, a few random scenes get
// a few kills.
func kills() (n int, all bool) {
	n, err := strconv.Atoi(os.Getenv("SHMSYNC_TEST_STEPKILLS"))
	if err != nil {
		return 2, false
	}
	return n, true
}

// budget is the time after which no further random scene begins.
func budget() time.Duration {
	return proctest.Rounds(3*time.Second, 15*time.Second)
}

// pace is the time that a scene gets for each kill. fewest is the least number of kills of a slow scene.
const (
	pace   = 30 * time.Millisecond
	fewest = 20
)

func eachScene(t *testing.T, f func(x *stage) stats) {
	only := os.Getenv("SHMSYNC_TEST_SCENE")
	var total stats
	table := ""
	_, all := kills()
	if only == "" {
		processInC(t) // compile before the time of the budget begins, because compiling takes longer than a scene
	}
	end := time.Now().Add(budget())
	order := rand.Perm(len(scenes))
	if all {
		slices.Sort(order)
	} else {
		// The first scene is always one in which another process has died before.
		first := slices.IndexFunc(order, func(i int) bool { return scenes[i].sacrificed })
		order[0], order[first] = order[first], order[0]
		// The second scene is always one with a victim in C.
		second := slices.IndexFunc(order, func(i int) bool { return scenes[i].c != nil })
		order[1], order[second] = order[second], order[1]
	}
	if only != "" {
		if !slices.ContainsFunc(scenes, func(s scene) bool { return strings.HasPrefix(s.name, only) }) {
			t.Fatalf("no scene begins with SHMSYNC_TEST_SCENE, %q", only)
		}
		proctest.LeaveOut(t, "victim", "sacrifice", "crowd", "process in C") // not each scene needs all of these
	}
	for drawn, i := range order {
		s := scenes[i]
		if !strings.HasPrefix(s.name, only) || !all && drawn > 1 && time.Now().After(end) {
			continue
		}
		if s.c != nil && processInC(t) == "" {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			st := f(newStage(t, s))
			t.Logf("%d kills, %d states for %d instructions, %d instructions done", st.kills, st.states, st.spots, st.steps)
			total.add(st)
			table += fmt.Sprintf("%-45s %8d %8d %8d %10d %v\n", s.name, st.kills, st.states, st.spots, st.steps, st.slow)
		})
	}
	t.Logf("%-45s %8s %8s %8s %10s\n%s%-45s %8d %8d %8d %10d %v", "scene", "kills", "states", "spots", "steps", table,
		"total", total.kills, total.states, total.spots, total.steps, total.slow)
}

// TestStepKills checks that the survivors go on if a process dies in an operation.
func TestStepKills(t *testing.T) {
	n, _ := kills()
	eachScene(t, func(x *stage) stats {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 3))
		x.t.Logf("seed %#x", seed)
		// If the scene is slow, end with fewer kills.
		end := time.Now().Add(time.Duration(n) * pace)
		enough := func(k int) bool { return k >= n || k >= fewest && time.Now().After(end) }
		x.play(atTheEnd)
		steps := x.limit.steps
		for k := 0; !enough(k); k++ {
			x.play(target{steps: r.IntN(steps + 1), spot: -1})
		}
		end = time.Now().Add(time.Duration(n) * pace)
		for spot := 0; !enough(spot) && !x.play(target{steps: -1, spot: spot}); spot++ {
		}
		return x.limit
	})
}

// TestStepImages checks that a newcomer finds everything usable if all participants die in an operation. An operation
// that clears memory gives thousands of states. The test takes the first states, and a random selection of the others.
func TestStepImages(t *testing.T) {
	n, _ := kills()
	eachScene(t, func(x *stage) stats {
		i := 0
		x.images(func(image []byte, spots int) {
			if i++; i <= n || rand.IntN(2*i) < n {
				x.revive(image, fmt.Sprintf("image %d", i))
				x.limit.states++
				x.limit.spots += spots
			}
		})
		x.t.Logf("%d states", i)
		return x.limit
	})
}
