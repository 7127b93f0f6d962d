package shmsync_test

import (
	"errors"
	"math"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

func init() {
	proctest.Register("futex/wait", func(c *proctest.Child) {
		w, err := mapWords(c.File(0))
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		o, err := shmsync.Wait(w.raw(0), 0, 0)
		for err == nil && w.word(0).Load() == 0 {
			o, err = shmsync.Wait(w.raw(0), 0, 0)
		}
		if err != nil {
			c.Fatal(err)
		}
		c.Say(o.String())
	})
	proctest.Register("futex/robust", func(c *proctest.Child) {
		w, err := mapWords(c.File(0))
		if err != nil {
			c.Fatal(err)
		}
		runtime.LockOSThread()
		list, err := shmsync.NewRobustList()
		if err != nil {
			c.Fatal(err)
		}
		list.Link(w.raw(0), 3)
		if err := list.Register(); err != nil {
			c.Fatal(err)
		}
		for i := range 3 {
			w.word(i).Store(uint32(shmsync.ThreadID()) | shmsync.RobustWaiters)
		}
		c.Ready()
		c.Await() // the signal to unregister the list
		list.Unregister()
		if err := list.Free(); err != nil {
			c.Fatal(err)
		}
	})
	proctest.Register("futex/bytelock", func(c *proctest.Child) {
		f, err := reopen(c.File(0))
		if err != nil {
			c.Fatal(err)
		}
		ok, err := shmsync.LockByte(f, 7)
		if err != nil || !ok {
			c.Fatal("lock", ok, err)
		}
		c.Ready()
		c.Await()
		if err := shmsync.UnlockByte(f, 7); err != nil {
			c.Fatal(err)
		}
		c.Ready()
		c.Await()
	})
}

func TestWaitSeesAChangedWord(t *testing.T) {
	w, _ := newWords(t)
	o, err := shmsync.Wait(w.raw(0), 1, 0)
	require.NoError(t, err)
	require.Equal(t, shmsync.Changed, o)
}

func TestWaitEndsAtItsDeadline(t *testing.T) {
	w, _ := newWords(t)
	for _, in := range []time.Duration{-time.Hour, 0, 20 * time.Millisecond} {
		deadline := shmsync.Monotonic() + int64(in)
		o, err := shmsync.Wait(w.raw(0), 0, deadline)
		require.NoError(t, err)
		require.Equal(t, shmsync.TimedOut, o)
		require.GreaterOrEqual(t, shmsync.Monotonic(), deadline)
	}
}

func TestWaitRefusesNonsense(t *testing.T) {
	w, _ := newWords(t)
	o, err := shmsync.WaitBitset(w.raw(0), 0, 0, 0)
	require.Equal(t, shmsync.Failed, o)
	require.ErrorIs(t, err, unix.EINVAL)
}

func TestWakeReachesAnotherProcess(t *testing.T) {
	w, f := newWords(t)
	p := proctest.Start(t, "futex/wait", proctest.Files(f))
	p.Await(t)
	require.Zero(t, shmsync.Wake(w.raw(1), 1), "nobody waits on the other word")
	w.word(0).Store(1)
	shmsync.Wake(w.raw(0), 1)
	var outcome string
	p.Recv(t, &outcome)
	require.Contains(t, []string{"woken", "changed"}, outcome)
	p.WaitExit(t)
}

// sleepers starts n goroutines that sleep on a word, and returns when all of them sleep.
func sleepers(t *testing.T, w words, n int, sleep func(i int)) (woken chan int) {
	woken = make(chan int, n)
	for i := range n {
		go func() {
			sleep(i)
			woken <- i
		}()
	}
	// Here Requeue wakes no sleeper. It moves each sleeper of the word to the same word again, so its result is the
	// number of sleepers.
	for {
		count, _, err := shmsync.Requeue(w.raw(0), 0, 0, w.raw(0), 1<<20)
		require.NoError(t, err)
		if count == n {
			return woken
		}
		runtime.Gosched()
	}
}

func TestWakeCounts(t *testing.T) {
	w, _ := newWords(t)
	woken := sleepers(t, w, 3, func(int) { shmsync.Wait(w.raw(0), 0, 0) })
	require.Equal(t, 1, shmsync.Wake(w.raw(0), 1))
	<-woken
	require.Equal(t, 2, shmsync.Wake(w.raw(0), math.MaxInt))
	<-woken
	<-woken
	require.Zero(t, shmsync.Wake(w.raw(0), 1))
}

func TestWakeOfNoneWakesNobody(t *testing.T) {
	w, _ := newWords(t)
	woken := sleepers(t, w, 2, func(int) { shmsync.Wait(w.raw(0), 0, 0) })
	for _, n := range []int{0, -1, math.MinInt} {
		require.Zero(t, shmsync.Wake(w.raw(0), n), "%d", n)
		require.Zero(t, shmsync.WakeBitset(w.raw(0), n, shmsync.MatchAny), "%d", n)
		k, o, err := shmsync.Requeue(w.raw(0), 0, n, w.raw(1), n)
		require.NoError(t, err, "%d", n)
		require.Equal(t, shmsync.Woken, o)
		require.Zero(t, k, "%d", n)
	}
	require.Equal(t, 2, shmsync.Wake(w.raw(0), 9))
	<-woken
	<-woken
}

func TestRequeueOfAnyNumber(t *testing.T) {
	w, _ := newWords(t)
	// The kernel reads only the low 32 bits of a count. In the last number of this list, these bits are 0.
	for _, n := range []int{math.MaxInt32, math.MaxInt, math.MaxInt &^ math.MaxUint32} {
		woken := sleepers(t, w, 2, func(int) { shmsync.Wait(w.raw(0), 0, 0) })
		k, o, err := shmsync.Requeue(w.raw(0), 0, 0, w.raw(1), n)
		require.NoError(t, err, "%d", n)
		require.Equal(t, shmsync.Woken, o)
		require.Equal(t, 2, k, "%d moved", n)
		k, _, err = shmsync.Requeue(w.raw(1), 0, n, w.raw(0), n)
		require.NoError(t, err, "%d", n)
		require.Equal(t, 2, k, "%d woken", n)
		<-woken
		<-woken
	}
}

func TestBitsetsSelectSleepers(t *testing.T) {
	w, _ := newWords(t)
	woken := sleepers(t, w, 4, func(i int) { shmsync.WaitBitset(w.raw(0), 0, 1<<(i%2), 0) })
	require.Equal(t, 2, shmsync.WakeBitset(w.raw(0), 9, 1<<1))
	require.Equal(t, 1, <-woken%2)
	require.Equal(t, 1, <-woken%2)
	require.Equal(t, 2, shmsync.WakeBitset(w.raw(0), 9, shmsync.MatchAny))
	<-woken
	<-woken
}

func TestRequeueMovesSleepers(t *testing.T) {
	w, _ := newWords(t)
	woken := sleepers(t, w, 3, func(int) { shmsync.Wait(w.raw(0), 0, 0) })
	_, o, err := shmsync.Requeue(w.raw(0), 5, 1, w.raw(1), 9)
	require.NoError(t, err)
	require.Equal(t, shmsync.Changed, o)
	n, _, err := shmsync.Requeue(w.raw(0), 0, 1, w.raw(1), 9)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	<-woken
	require.Zero(t, shmsync.Wake(w.raw(0), 9))
	require.Equal(t, 2, shmsync.Wake(w.raw(1), 9))
	<-woken
	<-woken
}

func TestWaitV(t *testing.T) {
	if err := shmsync.FeatureWaitV.Check(); err != nil {
		t.Skipf("needs futex_waitv: %v", err)
	}
	w, _ := newWords(t)
	entries := func() []shmsync.WaitVEntry {
		return []shmsync.WaitVEntry{shmsync.NewWaitVEntry(w.raw(0), 0), shmsync.NewWaitVEntry(w.raw(1), 0)}
	}
	_, o, err := shmsync.WaitV(entries(), shmsync.Monotonic()+1e6)
	require.NoError(t, err)
	require.Equal(t, shmsync.TimedOut, o)

	w.word(1).Store(1)
	_, o, err = shmsync.WaitV(entries(), 0)
	require.NoError(t, err)
	require.Equal(t, shmsync.Changed, o)

	w.word(1).Store(0)
	index := make(chan int)
	go func() {
		i, _, _ := shmsync.WaitV(entries(), 0)
		index <- i
	}()
	for shmsync.Wake(w.raw(1), 1) == 0 {
		runtime.Gosched()
	}
	require.Equal(t, 1, <-index)

	for _, n := range []int{0, shmsync.WaitVMax + 1} {
		_, o, err = shmsync.WaitV(make([]shmsync.WaitVEntry, n), 0)
		require.Equal(t, shmsync.Failed, o)
		require.ErrorIs(t, err, unix.EINVAL)
	}
}

// TestRobustListTellsADeath kills a process and waits until the kernel has marked the words.
func TestRobustListTellsADeath(t *testing.T) {
	if err := shmsync.FeatureRobustList.Check(); err != nil {
		proctest.Skip(t, "needs robust lists: "+err.Error(), "futex/robust")
	}
	w, f := newWords(t)
	p := proctest.Start(t, "futex/robust", proctest.Files(f))
	p.Await(t)
	alive := w.word(1).Load()
	require.NotZero(t, alive&shmsync.RobustTIDMask)
	done := make(chan shmsync.Outcome)
	go func() {
		o, _ := shmsync.Wait(w.raw(1), alive, 0)
		done <- o
	}()
	p.Kill(t)
	require.Contains(t, []shmsync.Outcome{shmsync.Woken, shmsync.Changed}, <-done)
	for i := range 3 {
		require.Equal(t, shmsync.RobustWaiters|shmsync.RobustOwnerDied, w.word(i).Load())
	}
}

func TestRobustListCanBeLeft(t *testing.T) {
	if err := shmsync.FeatureRobustList.Check(); err != nil {
		proctest.Skip(t, "needs robust lists: "+err.Error(), "futex/robust")
	}
	w, f := newWords(t)
	p := proctest.Start(t, "futex/robust", proctest.Files(f))
	p.Await(t)
	p.Send(nil)
	p.WaitExit(t)
	require.Zero(t, w.word(0).Load()&shmsync.RobustOwnerDied)
}

// TestRobustListGivesTheFormerListBack checks that Unregister restores the list that the thread had
// before Register. Threads of a C library have such a list. After the thread has ended, the word of
// the former list is marked.
func TestRobustListGivesTheFormerListBack(t *testing.T) {
	if err := shmsync.FeatureRobustList.Check(); err != nil {
		t.Skipf("needs robust lists: %v", err)
	}
	w, _ := newWords(t)
	former, err := shmsync.NewRobustList()
	require.NoError(t, err)
	ours, err := shmsync.NewRobustList()
	require.NoError(t, err)
	errs, over := make(chan error, 1), make(chan struct{})
	defer close(over)
	var thread func()
	thread = func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if shmsync.ThreadID() == os.Getpid() {
			go thread() // on another thread, because the first thread of a process does not end
			<-over
			runtime.UnlockOSThread()
			return
		}
		former.Link(w.raw(0), 1)
		ours.Link(w.raw(1), 1)
		errs <- errors.Join(former.Register(), ours.Register(), ours.Register(), ours.Unregister())
		w.word(0).Store(uint32(shmsync.ThreadID()) | shmsync.RobustWaiters)
	}
	go thread()
	require.NoError(t, <-errs)
	deadline := shmsync.Monotonic() + 5e9
	for v := w.word(0).Load(); v&shmsync.RobustOwnerDied == 0; v = w.word(0).Load() {
		o, err := shmsync.Wait(w.raw(0), v, deadline)
		require.NoError(t, err)
		require.NotEqual(t, shmsync.TimedOut, o, "the kernel has not marked the word of the former list: %#x", w.word(0).Load())
	}
	require.NoError(t, ours.Free())
	require.NoError(t, former.Free())
}

func TestByteLockTellsWhoLives(t *testing.T) {
	_, file := newWords(t)
	mine, err := reopen(file)
	require.NoError(t, err)
	defer mine.Close()
	locked, err := shmsync.ByteLocked(mine, 7)
	require.NoError(t, err)
	require.False(t, locked)

	p := proctest.Start(t, "futex/bytelock", proctest.Files(file))
	p.Await(t)
	locked, err = shmsync.ByteLocked(mine, 7)
	require.NoError(t, err)
	require.True(t, locked)
	ok, err := shmsync.LockByte(mine, 7)
	require.NoError(t, err)
	require.False(t, ok)
	locked, err = shmsync.ByteLocked(mine, 8)
	require.NoError(t, err)
	require.False(t, locked)

	p.Send(nil)
	p.Await(t)
	ok, err = shmsync.LockByte(mine, 7)
	require.NoError(t, err)
	require.True(t, ok, "given back")
	require.NoError(t, shmsync.UnlockByte(mine, 7))

	q := proctest.Start(t, "futex/bytelock", proctest.Files(file))
	q.Await(t)
	q.Kill(t)
	locked, err = shmsync.ByteLocked(mine, 7)
	require.NoError(t, err)
	require.False(t, locked, "gone with its process")
}

func TestMonotonicIsTheSystemsClock(t *testing.T) {
	var ts unix.Timespec
	before := shmsync.Monotonic()
	require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts))
	after := shmsync.Monotonic()
	const slack = int64(time.Millisecond)
	require.GreaterOrEqual(t, ts.Nano(), before-slack)
	require.LessOrEqual(t, ts.Nano(), after+slack)
	before = shmsync.Monotonic()
	now := shmsync.MonotonicOf(time.Now())
	after = shmsync.Monotonic()
	require.GreaterOrEqual(t, now, before)
	require.LessOrEqual(t, now, after)
}

// TestMonotonicOfFarTimes: a time in the far future stays in the future, and a time long ago stays in the past. No
// time becomes 0, because 0 means no deadline.
func TestMonotonicOfFarTimes(t *testing.T) {
	now := time.Now()
	for _, far := range []time.Time{
		now.Add(math.MaxInt64), now.Add(math.MaxInt64 - time.Hour), time.Unix(1<<40, 0), time.Date(2400, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		require.Greater(t, shmsync.MonotonicOf(far), shmsync.Monotonic()+int64(24*time.Hour), "%v", far)
	}
	for _, past := range []time.Time{{}, time.Unix(-1<<40, 0), now.Add(math.MinInt64), now.Add(-time.Second)} {
		require.Less(t, shmsync.MonotonicOf(past), shmsync.Monotonic(), "%v", past)
	}
	origin := now.Add(-time.Duration(shmsync.MonotonicOf(now)))
	require.EqualValues(t, 1, shmsync.MonotonicOf(origin))
	require.EqualValues(t, 2, shmsync.MonotonicOf(origin.Add(2)))
}

func TestFenceNeedsNoRegistrationOfItsCaller(t *testing.T) {
	if err := shmsync.FeatureMembarrier.Check(); err != nil {
		t.Skipf("needs membarrier: %v", err)
	}
	require.NoError(t, shmsync.Fence())
	require.NoError(t, shmsync.RegisterFence())
	require.NoError(t, shmsync.Fence())
}
