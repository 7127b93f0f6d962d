//go:build linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
)

func init() {
	// "forbid fences" makes each membarrier of this process fail from now on.
	agentOrders["forbid fences"] = func(s *agent, o order, a *answer) error {
		const load, equal, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
		return proctest.Filter([]unix.SockFilter{
			{Code: load},
			{Code: equal, K: unix.SYS_MEMBARRIER, Jf: 1},
			{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
			{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		})
	}
	agentOrders["is dead"] = func(s *agent, o order, a *answer) error {
		if s.arena.Dead(o.Name) {
			a.N = 1
		}
		return nil
	}
}

// TestDeathIsDeclaredOnlyAfterAFence: the kernel marks the alive words of a process when the thread of its death
// watcher ends. The other threads of the process may then still run for a moment. A late store of such a thread could
// free a lock that another process has taken. So no process declares the death before a fence has interrupted these
// threads. If no fence reaches them, no process declares the death before the process has ended.
//
// Here the victim is alive and stopped, and the test marks its alive words. So the threads of the victim can run for as
// long as the test needs.
func TestDeathIsDeclaredOnlyAfterAFence(t *testing.T) {
	for _, f := range []*shmsync.Feature{shmsync.FeatureOFDLock, shmsync.FeatureRobustList, shmsync.FeatureMembarrier} {
		if err := f.Check(); err != nil {
			t.Skipf("needs byte locks, robust lists and membarrier: %v", err)
		}
	}
	for what, c := range map[string]struct {
		victim, survivor []proctest.Option
		forbid           bool
		atOnce           bool
	}{
		"the fence succeeds":                     {atOnce: true},
		"the fence fails":                        {forbid: true},
		"a fence does not reach the victim":      {victim: []proctest.Option{without("membarrier")}},
		"the survivor has no fence":              {survivor: []proctest.Option{without("membarrier")}},
		"neither the survivor nor the victim":    {[]proctest.Option{without("membarrier")}, []proctest.Option{without("membarrier")}, false, false},
		"the fence fails and would not reach it": {victim: []proctest.Option{without("membarrier")}, forbid: true},
	} {
		t.Run(what, func(t *testing.T) {
			ta := newTestArena(t, 2)
			v, s := ta.join(t, "victim", c.victim...), ta.join(t, "survivor", c.survivor...)
			if c.victim == nil {
				v.must(t, order{Do: "fenced"})
			}
			v.must(t, order{Do: "lock", Text: "held"})
			if c.forbid {
				s.must(t, order{Do: "forbid fences"})
			}
			v.Stop(t)
			p := ta.peek(t)
			i := v.self.Slot()
			w := p.slotState(i)
			for k := range aliveWords {
				p.u32(p.aliveWord(i, k)).Or(shmsync.RobustOwnerDied)
			}
			for range 20 {
				require.Equal(t, c.atOnce, s.must(t, order{Do: "is dead", Name: v.self}).N == 1)
			}
			if !c.atOnce {
				require.Equal(t, w, p.slotState(i), "the slot")
			}
			v.Kill(t)
			s.alone(t, 1)
			s.must(t, order{Do: "lock", Text: "held"})
		})
	}
}
