//go:build crashpoint

package crashpoint

import (
	"syscall"
	"testing"
	"time"

	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/stretchr/testify/require"
)

func init() {
	proctest.Register("hit", func(c *proctest.Child) {
		for i := range 3 {
			Hit("test.point.two")
			Hit("test.point.one")
			c.Say(i)
		}
	})
	proctest.Register("arm", func(c *proctest.Child) {
		Hit("test.point.one") // before the arming, so it does not count
		Arm("test.point.one", 2)
		Hit("test.point.one")
		c.Say(1)
		Hit("test.point.one")
		c.Say(2)
	})
}

// recvAll returns the n values that a child has sent.
func recvAll(t *testing.T, p *proctest.Proc, n int) []int {
	t.Helper()
	said := make([]int, n)
	for i := range said {
		p.Recv(t, &said[i])
	}
	return said
}

func TestDie(t *testing.T) {
	for spec, survives := range map[string]int{"test.point.one": 0, "test.point.one:1": 0, "test.point.one:3": 2} {
		p := proctest.Start(t, "hit", proctest.Env("SHMSYNC_CRASHPOINT="+spec))
		p.WaitSignal(t, syscall.SIGKILL)
		require.Equal(t, []int{0, 1, 2}[:survives], recvAll(t, p, survives), spec)
	}
}

func TestSurvive(t *testing.T) {
	p := proctest.Start(t, "hit", proctest.Env("SHMSYNC_CRASHPOINT=test.point.one:4"))
	p.WaitExit(t)
}

func TestStop(t *testing.T) {
	p := proctest.Start(t, "hit", proctest.Env("SHMSYNC_CRASHPOINT_STOP=test.point.one:2"))
	p.AwaitStop(t)
	require.Equal(t, []int{0}, recvAll(t, p, 1))
	p.Cont(t)
	p.WaitExit(t)
	require.Equal(t, []int{1, 2}, recvAll(t, p, 2))
}

func TestArm(t *testing.T) {
	p := proctest.Start(t, "arm")
	p.WaitSignal(t, syscall.SIGKILL)
	require.Equal(t, []int{1}, recvAll(t, p, 1))
}

func TestUnknownNameInEnvironment(t *testing.T) {
	p := proctest.Start(t, "hit", proctest.Env("SHMSYNC_CRASHPOINT=test.point.none"))
	e := p.Wait(t)
	require.Equal(t, 2, e.Code)
	require.Contains(t, e.Stderr, "not a registered crash point")
}

func TestDelay(t *testing.T) {
	p := proctest.Start(t, "hit", proctest.Env("SHMSYNC_CRASHPOINT_DELAY=1:300"))
	p.WaitExit(t)
	require.Equal(t, []int{0, 1, 2}, recvAll(t, p, 3))
	for _, spec := range []string{"3", "0:5", "3:0", "x:5", "3:1ms"} {
		_, err := parseDelay(spec)
		require.ErrorContains(t, err, "is not of the form", spec)
	}
	d, err := parseDelay("3:500")
	require.NoError(t, err)
	require.Equal(t, delay{3, 500 * time.Microsecond}, d)
	slow, begun := 0, time.Now()
	for range 100 {
		at := time.Now()
		delay{2, 200 * time.Microsecond}.pass()
		if time.Since(at) > 10*time.Microsecond {
			slow++
		}
	}
	require.Positive(t, slow, "100 passes took %v", time.Since(begun))
}
