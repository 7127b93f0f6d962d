//go:build linux

package cinterop

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

// A process is stopped while it upgrades. Meanwhile new readers lock, and writers wait. When the process runs again, it
// keeps new readers out. Its upgrade ends when all present readers have unlocked.
func TestRWMutexStoppedUpgrader(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "rw.open", "m")
		s.a.do(t, "rw.ulock", "m")
		s.b.do(t, "rw.rlock", "m")
		up := s.a.asleep(t, off, 1, "rw.up", "m")
		s.a.stop(t)
		s.b.do(t, "rw.runlock", "m")
		s.b.do(t, "rw.rlock", "m")
		s.c.start(t, "rw.utry", "m").fails(t, syscall.EBUSY)
		s.c.start(t, "rw.lock", "m", 20).fails(t, syscall.ETIMEDOUT)
		require.NoError(t, s.a.cmd.Process.Signal(syscall.SIGCONT))
		eventually(t, "the upgrade keeps readers out", s.arena, func() bool {
			a := s.c.start(t, "rw.rtry", "m").wait(t)
			if a.err == 0 {
				s.c.do(t, "rw.runlock", "m")
			}
			return a.err == syscall.EBUSY
		})
		s.b.do(t, "rw.runlock", "m")
		up.must(t)
		s.c.start(t, "rw.rtry", "m").fails(t, syscall.EBUSY)
		s.a.do(t, "rw.w2u", "m")
		s.a.do(t, "rw.uunlock", "m")
		s.c.do(t, "rw.lock", "m")
	})
}

// A process that upgrades, or that has an upgradable hold, is stopped and then killed. No death is reported.
func TestRWMutexKilledWhileStopped(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "rw.open", "m")
		s.a.do(t, "rw.ulock", "m")
		s.b.do(t, "rw.rlock", "m")
		s.a.asleep(t, off, 1, "rw.up", "m")
		s.a.stop(t)
		s.b.do(t, "rw.runlock", "m")
		u := s.c.asleep(t, off, 2, "rw.ulock", "m")
		s.a.kill(t)
		u.must(t)
		s.c.do(t, "rw.up", "m")
		s.c.do(t, "rw.unlock", "m")
		sound(t, s.arena)
	})
}

// deathsOfUpgraders lists the crash points that a process passes while it gets or changes an upgradable hold.
var deathsOfUpgraders = []struct {
	point string
	verbs []string // calls of the process, which dies in the last call
	reads bool     // a survivor has a read hold from before the last call until the death
	waits bool     // a survivor waits to read during the last call
	told  bool     // the death is reported
}{
	{"rwmutex.lock.queued", []string{"rw.ulock"}, false, false, false},
	{"rwmutex.upgradable.acquired", []string{"rw.ulock"}, false, false, false},
	{"rwmutex.upgradable.acquired", []string{"rw.utry"}, false, false, false},
	{"rwmutex.lock.closed", []string{"rw.ulock", "rw.up"}, false, false, false},
	{"rwmutex.lock.closed", []string{"rw.ulock", "rw.uptry"}, false, false, false},
	{"rwmutex.lock.announced", []string{"rw.ulock", "rw.up"}, true, false, false},
	{"rwmutex.lock.woken", []string{"rw.ulock", "rw.up"}, true, false, false},
	{"rwmutex.lock.leaving", []string{"rw.ulock", "rw.up"}, true, false, false},
	{"rwmutex.lock.acquired", []string{"rw.ulock", "rw.up"}, false, false, true},
	{"rwmutex.lock.acquired", []string{"rw.ulock", "rw.uptry"}, false, false, true},
	{"rwmutex.unlock.opened", []string{"rw.ulock", "rw.up", "rw.w2u"}, false, true, false},
	{"rwmutex.unlock.granted", []string{"rw.ulock", "rw.up", "rw.w2u"}, false, true, false},
	{"rwmutex.unlock.woken", []string{"rw.ulock", "rw.up", "rw.w2u"}, false, true, false},
	{"rwmutex.upgradable.acquired:2", []string{"rw.ulock", "rw.up", "rw.w2u"}, false, true, false},
	{"rwmutex.upgradable.reader_added", []string{"rw.ulock", "rw.u2r"}, true, false, false},
}

// A process dies at each step of its work with upgradable holds. The survivor goes on as if the dead process had
// released the lock. The survivor learns of the death only if the dead process could have written. Go programs have
// crash points only with the build tag crashpoint.
func TestRWMutexUpgraderDiesAtEachPoint(t *testing.T) {
	t.Parallel()
	for _, p := range pairs {
		if p[0] == "go" && !crashpoint.Enabled {
			continue
		}
		for _, c := range deathsOfUpgraders {
			last := c.verbs[len(c.verbs)-1]
			t.Run(p[0]+"-"+p[1]+"/"+c.point+"/"+last, func(t *testing.T) {
				name := newArena(t)
				x := newAgent(t, p[1], name, "survivor")
				off := x.do(t, "rw.open", "m")
				victim := newAgent(t, p[0], name, "victim", "SHMSYNC_CRASHPOINT="+c.point)
				victim.mortal = true
				for _, v := range c.verbs[:len(c.verbs)-1] {
					victim.do(t, v, "m")
				}
				if c.reads {
					x.do(t, "rw.rlock", "m")
				}
				var reader pending
				if c.waits {
					reader = x.asleep(t, off, 1, "rw.rlock", "m")
				}
				if c.point == "rwmutex.lock.leaving" {
					victim.start(t, last, "m", 20)
				} else {
					victim.start(t, last, "m")
				}
				wakes := c.point == "rwmutex.lock.woken" // a sleep in C may also end without a wake
				if wakes {
					eventually(t, "it sleeps or has ended", name, func() bool { return victim.hasEnded() || x.do(t, "sleepers", "-", off) == 1 })
					x.do(t, "rw.runlock", "m")
				}
				victim.ends(t)
				require.True(t, victim.killed(), "%s: it ended otherwise", victim.stderr)
				if c.waits {
					reader.must(t)
				}
				if c.waits || c.reads && !wakes {
					eventually(t, "the gate is open", name, func() bool { return x.start(t, "rw.rtry", "m").wait(t).err == 0 })
					x.do(t, "rw.runlock", "m")
					x.do(t, "rw.runlock", "m")
				}
				if c.told {
					x.start(t, "rw.ulock", "m").fails(t, syscall.EOWNERDEAD)
					x.start(t, "rw.rlock", "m").fails(t, syscall.EOWNERDEAD)
					require.EqualValues(t, 1, x.do(t, "rw.recover", "m"))
				}
				x.do(t, "rw.ulock", "m")
				x.do(t, "rw.up", "m")
				x.do(t, "rw.w2u", "m")
				x.do(t, "rw.u2r", "m")
				x.do(t, "rw.runlock", "m")
				sound(t, name)
			})
		}
	}
}

// hasEnded reports whether the process has closed its output.
func (x *agent) hasEnded() bool {
	select {
	case <-x.ended:
		return true
	default:
		return false
	}
}

// killed reports whether SIGKILL has ended the process.
func (x *agent) killed() bool {
	x.cmd.Wait()
	ws, is := x.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return is && ws.Signal() == os.Kill
}
