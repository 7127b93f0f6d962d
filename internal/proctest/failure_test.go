package proctest

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func init() {
	Register("hang", hangForEver)
	Register("unresponsive", func(c *Child) {
		signal.Ignore(syscall.SIGQUIT)
		c.Ready()
		c.Await()
	})
}

// hangForEver says something and then blocks. A test finds its name in the stacks of the child.
//
//go:noinline
func hangForEver(c *Child) {
	c.Say("about to hang")
	select {}
}

// failure runs f as a test that must fail and returns its log.
func failure(t *testing.T, f func(testing.TB)) string {
	t.Helper()
	tb := runFake(t, f)
	require.True(t, tb.Failed(), "the test passed")
	return tb.output()
}

// brief makes the next waits for p end soon. Its start may still take as long as it needs.
func brief(p *Proc) { p.limit = Scale(300 * time.Millisecond) }

func TestTimeoutShowsWordsAndStacks(t *testing.T) {
	var p *Proc
	log := failure(t, func(tb testing.TB) {
		p = Start(tb, "hang", Dump(func() string { return "owner 3 waiters 1" }))
		p.Await(tb)
		panic("not reached")
	})
	require.Contains(t, log, `said "about to hang", want ready`)

	log = failure(t, func(tb testing.TB) {
		p = Start(tb, "hang", Dump(func() string { return "owner 3 waiters 1" }))
		var s string
		p.Recv(tb, &s)
		brief(p)
		p.Recv(tb, &s)
		panic("not reached")
	})
	require.Contains(t, log, "hang (pid ")
	require.Contains(t, log, "did not say something within "+Scale(300*time.Millisecond).String())
	require.Contains(t, log, "owner 3 waiters 1")
	require.Contains(t, log, "proctest.hangForEver", "the child's stacks")
	select {
	case <-p.Done():
	default:
		t.Fatal("the child survives its timeout")
	}
}

func TestTimeoutOfWait(t *testing.T) {
	log := failure(t, func(tb testing.TB) {
		p := Start(tb, "idle")
		p.Await(tb)
		brief(p)
		p.Wait(tb)
	})
	require.Contains(t, log, "did not exit within "+Scale(300*time.Millisecond).String())
	require.Contains(t, log, "proctest.idle(")
}

// TestTimeoutOfUnresponsiveChild checks that a child that does not react to SIGQUIT is killed.
func TestTimeoutOfUnresponsiveChild(t *testing.T) {
	log := failure(t, func(tb testing.TB) {
		p := Start(tb, "unresponsive")
		p.grace = 300 * time.Millisecond
		p.Await(tb)
		brief(p)
		p.WaitExit(tb)
	})
	require.Contains(t, log, "SIGQUIT did not end it")
	require.Contains(t, log, "killed by signal 9")
}

func TestChildFatal(t *testing.T) {
	log := failure(t, func(tb testing.TB) { Start(tb, "fatal").Await(tb) })
	require.Contains(t, log, "failed when it should ready: exit status 1\nfatal: no luck")

	log = failure(t, func(tb testing.TB) { Start(tb, "fatal").WaitExit(tb) })
	require.Contains(t, log, "exit status 1\nfatal: no luck")

	var e Exit
	tb := runFake(t, func(tb testing.TB) { e = Start(tb, "fatal").Wait(tb) })
	require.False(t, tb.Failed(), "a test may expect a Fatal")
	require.Equal(t, Exit{Code: exitFatal, Fatal: "no luck"}, e)
}

func TestChildPanic(t *testing.T) {
	log := failure(t, func(tb testing.TB) { Start(tb, "panic").Await(tb) })
	require.Contains(t, log, "ended when it should ready: exit status 2")
	require.Contains(t, log, "panic: out of order")
}

// TestUnobservedFailure checks that the failure of a child is reported even if the test never asks how the child has
// ended.
func TestUnobservedFailure(t *testing.T) {
	log := failure(t, func(tb testing.TB) {
		p := Start(tb, "panic")
		<-p.Done()
	})
	require.Contains(t, log, "ended by itself: exit status 2")
	require.Contains(t, log, "panic: out of order")
}

func TestStderrOfFailedTest(t *testing.T) {
	log := failure(t, func(tb testing.TB) {
		p := Start(tb, "environ")
		p.WaitExit(tb)
		tb.Errorf("something else")
	})
	require.Contains(t, log, "stderr of environ (pid ")
	require.Contains(t, log, "printed")
}

func TestMismatches(t *testing.T) {
	log := failure(t, func(tb testing.TB) { Start(tb, "nobody") })
	require.Contains(t, log, `no helper is registered as "nobody"`)

	log = failure(t, func(tb testing.TB) { Start(tb, "exit", Params("no number")).Await(tb) })
	require.Contains(t, log, "params")

	log = failure(t, func(tb testing.TB) { Start(tb, "file").Await(tb) })
	require.Contains(t, log, "file 1 of 0")

	log = failure(t, func(tb testing.TB) {
		var i int
		Start(tb, "idle").Recv(tb, &i)
	})
	require.Contains(t, log, "ready, want a value")

	log = failure(t, func(tb testing.TB) {
		p := Start(tb, "idle")
		p.Kill(tb)
		p.Send(1)
	})
	require.Contains(t, log, "send to idle")

	log = failure(t, func(tb testing.TB) {
		p := Start(tb, "idle")
		p.Kill(tb)
		p.Signal(tb, os.Interrupt)
	})
	require.Contains(t, log, "already finished")

	log = failure(t, func(tb testing.TB) {
		p := Start(tb, "exit", Params(4))
		p.WaitSignal(tb, 9)
	})
	require.Contains(t, log, "exit status 4, want signal 9")

	log = failure(t, func(tb testing.TB) { Skip(tb, "needs a reason", "nobody") })
	require.Contains(t, log, "nobody")
}

func TestParseScale(t *testing.T) {
	require.Equal(t, 1.0, parseScale(""))
	require.Equal(t, 2.5, parseScale("2.5"))
	for _, bad := range []string{"0", "-1", "x", "NaN", "1e9"} {
		require.Panics(t, func() { parseScale(bad) }, bad)
	}
}
