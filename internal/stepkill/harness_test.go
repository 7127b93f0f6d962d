//go:build linux && amd64

package stepkill_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/stepkill"
	"github.com/shmsync/shmsync/shm"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// The arenas are small, because the tester compares all their bytes after each instruction.
var arenaOptions = arena.Options{Size: 1 << 20, MaxParticipants: 6, Label: "tester"}

type victimParams struct {
	Arena, Scene, Object string
}

func sceneOf(c *proctest.Child) (scene, victimParams) {
	var p victimParams
	c.Params(&p)
	object = p.Object
	for _, s := range scenes {
		if s.name == p.Scene {
			return s, p
		}
	}
	c.Fatalf("no scene is called %q", p.Scene)
	panic("unreachable")
}

func openScene(c *proctest.Child, s scene, p victimParams, label string) (*arena.Arena, part) {
	a, err := arena.Attach(p.Arena, &arena.Options{Label: label})
	if err != nil {
		c.Fatal(err)
	}
	x, err := s.open(a)
	if err != nil {
		c.Fatal(err)
	}
	return a, x
}

func init() {
	proctest.Register("victim", func(c *proctest.Child) {
		// The thread that is stepped is not the first thread of the process, because the end of the first thread
		// would be the end of the process.
		runtime.LockOSThread()
		debug.SetGCPercent(-1)
		s, p := sceneOf(c)
		ctl, err := stepkill.OpenControl(c.File(0))
		if err != nil {
			c.Fatal(err)
		}
		var x part
		if s.unjoined {
			x.op = func() { arena.Attach(p.Arena, &arena.Options{Label: "victim"}) }
		} else {
			_, x = openScene(c, s, p, "victim")
		}
		go func() {
			runtime.LockOSThread()
			if x.prep != nil && !s.sacrificed {
				x.prep()
			}
			ctl.Tid.Store(uint32(unix.Gettid()))
			c.Ready()
			for ctl.Gate.Load() == 0 {
			}
			ctl.Began.Store(1)
			x.op()
			ctl.Ended.Store(1)
			select {}
		}()
		c.Await()
	})

	proctest.Register("sacrifice", func(c *proctest.Child) {
		s, p := sceneOf(c)
		_, x := openScene(c, s, p, "sacrifice")
		if x.prep != nil {
			x.prep()
		}
		c.Ready()
		c.Await()
	})

	// A crowd is a process whose goroutines wait. It is stopped while images are taken.
	proctest.Register("crowd", func(c *proctest.Child) {
		s, p := sceneOf(c)
		_, x := openScene(c, s, p, "crowd")
		for range s.waiters {
			go x.wait()
		}
		c.Ready()
		c.Await()
	})
}

// stage runs one scene again and again.
type stage struct {
	t     *testing.T
	s     scene
	a     *arena.Arena
	own   part
	round int
	limit stats
}

// stats counts what a test has done.
type stats struct {
	kills  int // kills of a process, as opposed to images
	steps  int // instructions that victims executed
	states int // images that a newcomer joined
	spots  int // instruction boundaries that these images stand for
	slow   time.Duration
}

func (x *stats) add(y stats) {
	x.kills += y.kills
	x.steps += y.steps
	x.states += y.states
	x.spots += y.spots
	x.slow = max(x.slow, y.slow)
}

func newArena(t *testing.T) *arena.Arena {
	t.Helper()
	name := fmt.Sprintf("shmsync-test-step-%d-%d", os.Getpid(), time.Now().UnixNano())
	a, err := arena.Create(name, &arenaOptions)
	require.NoError(t, err)
	t.Cleanup(func() {
		shm.Remove(name)
		a.Close()
	})
	return a
}

func newStage(t *testing.T, s scene) *stage {
	t.Helper()
	x := &stage{t: t, s: s, a: newArena(t)}
	if !s.fresh {
		x.open()
	}
	return x
}

func (x *stage) open() {
	x.t.Helper()
	x.round++
	object = fmt.Sprint("object-", x.round)
	var err error
	x.own, err = x.s.open(x.a)
	require.NoError(x.t, err)
}

func words(a *arena.Arena) string {
	var b strings.Builder
	for o := range a.Objects() {
		fmt.Fprintf(&b, "%v %v: %s\n", o.Kind, o, (*arenakernel.Arena)(a).Describe(arenakernel.Object(o)))
	}
	for p := range a.Participants() {
		fmt.Fprintf(&b, "%v %s, notice %s, fenced %v\n", p.Identity, p.State, p.Notice, p.Fenced)
	}
	return b.String()
}

func (x *stage) start(helper string, files ...*os.File) *proctest.Proc {
	x.t.Helper()
	return x.startWith(helper, victimParams{Arena: filepath.Base(x.a.Path()), Scene: x.s.name, Object: object}, files...)
}

// victim starts the process that is to be killed, in the language of the scene.
func (x *stage) victim(control *os.File) *proctest.Proc {
	x.t.Helper()
	if x.s.c == nil {
		return x.start("victim", control)
	}
	return x.startC(filepath.Base(x.a.Path()), x.s.c.does, control)
}

func (x *stage) startWith(helper string, params any, files ...*os.File) *proctest.Proc {
	x.t.Helper()
	return proctest.Start(x.t, helper, proctest.Files(files...), proctest.Params(params),
		proctest.Env("GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=3"), proctest.Dump(func() string { return words(x.a) }))
}

// target says when a victim is killed: after the number of instructions in steps, or at the place whose index, from 0,
// is in spot. A place is an instruction boundary at which a death leaves another state than a death one instruction
// earlier. The value -1 means never.
type target struct{ steps, spot int }

var atTheEnd = target{-1, -1}

func (g target) String() string {
	switch {
	case g.spot >= 0:
		return fmt.Sprintf("at place %d", g.spot)
	case g.steps >= 0:
		return fmt.Sprintf("after %d instructions", g.steps)
	}
	return "at the end"
}

// run is a victim during its operation.
type run struct {
	*stage
	victim *proctest.Proc
	tracer *stepkill.Tracer
	ctl    *stepkill.Control
	watch  *stepkill.Watch
	freed  bool

	helping chan struct{} // closed when the function that help has started returns; nil without such a function

	steps, spots int
	ended        bool // the operation is over
}

// begin starts a victim. If watched is set, begin also begins to watch the bytes of the arena. The caller must have
// locked its goroutine to its thread.
func (x *stage) begin(watched bool) *run {
	t := x.t
	t.Helper()
	r := &run{stage: x}
	if x.own.hold != nil {
		x.own.hold()
	}
	if x.s.sacrificed {
		p := x.start("sacrifice")
		p.Await(t)
		p.Kill(t)
	}
	ctl, f, err := stepkill.NewControl()
	require.NoError(t, err)
	defer f.Close()
	t.Cleanup(func() { ctl.Close() })
	r.ctl = ctl
	r.victim = x.victim(f)
	r.victim.Await(t)
	if watched {
		r.watch, err = stepkill.NewWatch(x.a.Path())
		require.NoError(t, err)
	}
	return r
}

// seize makes the tester the tracer of the victim's thread, and steps this thread to the beginning of the operation.
func (r *run) seize() {
	t := r.t
	t.Helper()
	var err error
	r.tracer, err = stepkill.Seize(r.victim.Pid(), int(r.ctl.Tid.Load()))
	if err != nil {
		t.Fatalf("%s: %v: %v\n%s", r.s.name, err, r.victim.Kill(t), words(r.a))
	}
	t.Cleanup(func() { r.tracer.Kill() }) // otherwise the wait for the end of the victim would not return
	r.ctl.Gate.Store(1)
	for r.ctl.Began.Load() == 0 {
		s, err := r.tracer.Step()
		if err == nil && s == stepkill.Asleep { // in the runtime of Go; another thread of the victim wakes it
			s, err = r.tracer.Wait(proctest.Scale(limit))
		}
		require.NoError(t, err)
		r.mustBe(stepkill.Stopped, s)
	}
	if r.watch != nil {
		require.NoError(t, r.watch.Refresh())
		r.watch.Changed()
	}
}

func (r *run) mustBe(want, is stepkill.State) {
	r.t.Helper()
	if is != want {
		end := r.tracer.End()
		err := r.tracer.Kill() // otherwise the wait for the end of the victim would not return
		r.t.Fatalf("%s: the victim is in state %d, want %d, %d instructions on: %s: %v, %v\n%s", r.s.name, is, want, r.steps, end, err, r.victim.Kill(r.t), words(r.a))
	}
}

// step executes one instruction, and reports whether the victim is now at a new place; see target. If the instruction
// puts the victim to sleep, the caller calls wake next.
func (r *run) step() (place bool) {
	t := r.t
	t.Helper()
	s, err := r.tracer.Step()
	require.NoError(t, err)
	r.steps++
	if s == stepkill.Asleep {
		r.spots++
		return true
	}
	r.mustBe(stepkill.Stopped, s)
	return r.arrived()
}

// wake gives a sleeping victim what it waits for, and waits until the victim has woken. wake reports whether the victim
// is now at a new place; see target.
func (r *run) wake() (place bool) {
	t := r.t
	t.Helper()
	r.free(false)
	for end := time.Now().Add(proctest.Scale(limit)); ; {
		s, err := r.tracer.Wait(time.Millisecond)
		require.NoError(t, err)
		switch s {
		case stepkill.Stopped:
			r.rest(5 * time.Millisecond)
			return r.arrived()
		case stepkill.Gone:
			t.Fatalf("the victim ended by itself: %s", r.victim.Stderr())
		}
		if r.own.rescue != nil && !r.own.late && r.rest(0) {
			r.help(r.own.rescue)
		}
		if time.Now().After(end) {
			t.Fatalf("%s: the victim sleeps for ever, %d instructions on\n%s", r.s.name, r.steps, words(r.a))
		}
	}
}

// help calls f on another goroutine, because the stopped victim may hold something that f needs. It waits only a
// millisecond for f to return. To wait for longer, call the method rest.
func (r *run) help(f func()) {
	done := make(chan struct{})
	r.helping = done
	go func() {
		defer close(done)
		f()
	}()
	r.rest(time.Millisecond)
}

// rest waits until the function that help has started returns, but not longer than limit. It reports whether the
// function has returned.
func (r *run) rest(limit time.Duration) bool {
	if r.helping == nil {
		return true
	}
	end := time.NewTimer(limit)
	defer end.Stop()
	select {
	case <-r.helping:
		r.helping = nil
		return true
	case <-end.C:
		return false
	}
}

func (r *run) arrived() (place bool) {
	r.ended = r.ctl.Ended.Load() != 0
	if r.watch == nil {
		return false
	}
	called := r.tracer.Called()
	if called {
		require.NoError(r.t, r.watch.Refresh())
	}
	if r.watch.Changed() || called {
		r.spots++
		return true
	}
	return false
}

func (r *run) free(last bool) {
	if r.own.free != nil && !r.freed && (last || !r.own.late) {
		r.freed = true
		if last {
			r.own.free()
		} else {
			r.help(r.own.free)
		}
	}
}

func (r *run) kill() {
	t := r.t
	t.Helper()
	require.NoError(t, r.tracer.Kill())
	r.victim.WaitSignal(t, syscall.SIGKILL)
	if !r.rest(proctest.Scale(limit)) {
		t.Fatalf("%s: the goroutine that helped the victim hangs\n%s", r.s.name, words(r.a))
	}
	if r.watch != nil {
		r.watch.Close()
	}
}

// play runs the scene once, and kills the victim at g. It reports whether the operation was over before the kill.
func (x *stage) play(g target) (ended bool) {
	t := x.t
	t.Helper()
	if x.s.fresh {
		x.open()
	}
	dead.Store(false)
	r := x.begin(g.spot >= 0)
	var wg sync.WaitGroup
	errs := make(chan error, x.s.waiters)
	for range x.s.waiters {
		wg.Go(func() {
			if err := x.own.wait(); err != nil {
				errs <- err
			}
		})
	}
	if x.s.waiters > 0 {
		<-time.NewTimer(300 * time.Microsecond).C // give the waiters time to fall asleep
	}
	r.seize()
	asleep := false
	for !r.ended && r.steps < longest && (g.steps < 0 || r.steps < g.steps) && (g.spot < 0 || r.spots <= g.spot) {
		spots := r.spots
		if asleep {
			asleep = false
			r.wake()
			continue
		}
		place := r.step()
		asleep = place && r.spots == spots+1 && r.sleeping()
	}
	r.kill()
	killed := time.Now()
	dead.Store(true)
	r.free(true)
	x.goOn(&wg, errs, killed, fmt.Sprint("killed ", g))
	if x.s.fresh {
		require.NoError(t, x.own.close(), "%s, killed %v", x.s.name, g)
	}
	x.limit.kills++
	x.limit.steps += r.steps
	return r.ended
}

// goOn checks that the waiters go on after a death, and then checks the state of the arena.
func (x *stage) goOn(wg *sync.WaitGroup, errs chan error, killed time.Time, what string) {
	t := x.t
	t.Helper()
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	end := time.NewTimer(proctest.Scale(limit))
	defer end.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for going := true; going; {
		select {
		case <-done:
			going = false
		case <-tick.C:
			if x.own.rescue != nil {
				x.own.rescue()
			}
		case <-end.C:
			t.Fatalf("%s, %s: the waiters do not go on\n%s", x.s.name, what, words(x.a))
		}
	}
	if x.s.waiters > 0 {
		x.limit.slow = max(x.limit.slow, time.Since(killed))
	}
	select {
	case err := <-errs:
		t.Fatalf("%s, %s: %v\n%s", x.s.name, what, err, words(x.a))
	default:
	}
	x.alone(func() string { return x.s.name + ", " + what })
	x.check(x.own, x.a, what)
}

// sleeping reports whether the victim sleeps in the kernel.
func (r *run) sleeping() bool { return r.tracer.Sleeps() }

// check checks the state of an arena after a death.
func (x *stage) check(own part, a *arena.Arena, what string) {
	t := x.t
	t.Helper()
	sound(t, a, x.s.name+", "+what)
	if own.use != nil {
		if err := within(own.use); err != nil {
			t.Fatalf("%s, %s: a newcomer cannot use it: %v\n%s", x.s.name, what, err, words(a))
		}
		sound(t, a, x.s.name+", "+what+" and used")
	}
}

// within runs f, and returns an error if f takes longer than limit.
func within(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	end := time.NewTimer(proctest.Scale(2 * limit))
	defer end.Stop()
	select {
	case err := <-done:
		return err
	case <-end.C:
		return errors.New("it hangs")
	}
}

// sound checks the whole arena. A check may see a state that another process is about to change, so sound repeats the
// check and reports only a fault that stays.
func sound(t *testing.T, a *arena.Arena, what string) {
	t.Helper()
	err := a.Check()
	for end := time.Now().Add(proctest.Scale(limit)); err != nil && time.Now().Before(end); err = a.Check() {
		<-time.NewTimer(time.Millisecond).C
	}
	require.NoError(t, err, "%s\n%s", what, words(a))
}

// alone waits until all other participants are reaped. If the victim joins in this scene, alone does not wait for a
// process that died while it joined. No other process learns of such a death, and the dead process holds nothing. So
// its slot may stay until the next process joins.
func (x *stage) alone(what func() string) {
	x.t.Helper()
	alone(x.t, x.a, x.s.unjoined, what)
}

func alone(t *testing.T, a *arena.Arena, joiners bool, what func() string) {
	t.Helper()
	end := time.Now().Add(proctest.Scale(limit))
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 2*time.Millisecond) {
		n := 0
		for p := range a.Participants() {
			if !joiners || p.State != "joining" {
				n++
			}
		}
		if n == 1 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: the dead are not reaped\n%s", what(), words(a))
		}
		<-time.NewTimer(pause).C
	}
}

// images lets a victim go through its operation, and calls f with each image that differs from the image before it. The
// parameter n of f is the number of instruction boundaries at which the arena had the bytes of the image.
func (x *stage) images(f func(image []byte, n int)) {
	t := x.t
	t.Helper()
	if x.s.fresh {
		x.open()
	}
	dead.Store(false)
	r := x.begin(true)
	var crowd *proctest.Proc
	if x.s.waiters > 0 {
		crowd = x.start("crowd")
		crowd.Await(t)
		<-time.NewTimer(2 * time.Millisecond).C
		crowd.Stop(t)
	}
	r.seize()
	died["crowd"] = true
	defer delete(died, "crowd")
	n := 1
	last := r.watch.Image()
	asleep := false
	for !r.ended && r.steps < longest {
		var place bool
		if asleep {
			asleep = false
			if crowd != nil {
				crowd.Cont(t) // the crowd may have to give up what the victim waits for
			}
			place = r.wake()
			if crowd != nil {
				crowd.Stop(t)
				place = r.watch.Changed() || place
			}
		} else {
			spots := r.spots
			place = r.step()
			asleep = place && r.spots == spots+1 && r.sleeping()
			if asleep {
				place = r.watch.Changed()
			}
		}
		if place && !same(last, r.watch) {
			f(last, n)
			last, n = r.watch.Image(), 0
		}
		n++
	}
	f(last, n)
	x.limit.steps += r.steps
	if crowd != nil {
		crowd.Kill(t)
	}
	r.kill()
	dead.Store(true)
	r.free(true)
	x.alone(func() string { return x.s.name })
	x.check(x.own, x.a, "after its images")
	if x.s.fresh {
		require.NoError(t, x.own.close())
	}
}

// longest is the maximal number of instructions that are stepped in one operation. The first operation with a handle
// may be longer, because it builds tables of types.
const longest = 100_000

func same(image []byte, w *stepkill.Watch) bool { return w.Is(image) }

// revive writes an image, in which all participants are dead, to a file of its own, and joins that file. In some
// scenes a newcomer in C joins another file with the same image.
func (x *stage) revive(image []byte, what string) {
	t := x.t
	t.Helper()
	x.reviveInC(image, what)
	name := fmt.Sprintf("shmsync-test-image-%d-%d", os.Getpid(), time.Now().UnixNano())
	defer shm.Remove(name)
	require.NoError(t, stepkill.WriteImage("/dev/shm/"+name, image))
	a, err := arena.Attach(name, &arena.Options{Label: "newcomer"})
	require.NoError(t, err, what)
	died["tester"] = true // the tester is one of the dead in the image
	defer delete(died, "tester")
	alone(t, a, false, func() string { return x.s.name + ", " + what })
	sound(t, a, x.s.name+", "+what)
	if !x.s.owing {
		require.Zero(t, a.Stats().Claimed, "%s, %s: blocks of the dead", x.s.name, what)
	}
	own, err := x.s.open(a)
	require.NoError(t, err, "%s, %s", x.s.name, what)
	x.check(own, a, what)
	require.Zero(t, a.Stats().Claimed, "%s, %s: blocks of the dead", x.s.name, what)
	if own.close != nil {
		require.NoError(t, own.close(), "%s, %s", x.s.name, what)
	}
	require.NoError(t, a.Close(), "%s, %s", x.s.name, what)
}
