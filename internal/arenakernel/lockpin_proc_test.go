//go:build linux

package arenakernel

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/proctest"
)

// descriptorsOf returns the descriptors of this process that refer to a file.
func descriptorsOf(id segmentID) (fds []int, err error) {
	entries, err := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		fd, _ := strconv.Atoi(e.Name())
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && uint64(st.Dev) == id.dev && st.Ino == id.ino {
			fds = append(fds, fd)
		}
	}
	return fds, err
}

func init() {
	// "lose the lock" closes the descriptor whose byte lock shows that this process is alive, as other code of the
	// program may do by mistake. If Text is set, the number of the descriptor then refers to a file with that name.
	// If N is set, the other descriptors of the arena are closed, too.
	agentOrders["lose the lock"] = func(s *agent, o order, a *answer) error {
		lost := []int{int(s.arena.lock.Fd())}
		if o.N != 0 {
			var err error
			if lost, err = descriptorsOf(s.arena.id); err != nil {
				return err
			}
			if len(lost) < 2 {
				return fmt.Errorf("descriptors %v of %s", lost, s.arena.label)
			}
		}
		for _, fd := range lost {
			if o.Text == "" {
				if err := unix.Close(fd); err != nil {
					return err
				}
				continue
			}
			other, err := unix.Open(o.Text, unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			if err := unix.Dup3(other, fd, unix.O_CLOEXEC); err != nil {
				return err
			}
			unix.Close(other)
		}
		a.N = int64(len(lost))
		return nil
	}
}

// TestStrayCloseIsNoDeath checks that a process that closes its descriptors by mistake counts as alive and keeps its
// lock. A process that joins after the mistake must see this, too. The arena is full in some of the subtests.
func TestStrayCloseIsNoDeath(t *testing.T) {
	for _, all := range []int{0, 1} {
		for _, slots := range []int{3, 6} {
			t.Run(fmt.Sprintf("all %d of %d slots", all, slots), func(t *testing.T) {
				ta := newTestArena(t, slots)
				v, s := ta.join(t, "victim"), ta.join(t, "survivor")
				v.must(t, order{Do: "fenced"})
				v.must(t, order{Do: "lock", Text: "held"})
				v.must(t, order{Do: "lose the lock", N: all})
				n := ta.join(t, "newcomer")
				if slots == 3 {
					late := ta.start(t).try(t, order{Do: "open", Arena: ta.name, Opts: &ta.opts})
					require.Equal(t, []string{"no space"}, late.Is, late.Err)
				}
				for _, r := range []*remote{s, n, v} {
					require.Equal(t, []string{"newcomer", "survivor", "victim"}, labels(r.participants(t)))
					require.Zero(t, r.must(t, order{Do: "dead", Name: v.self}).N)
				}
				require.NotEmpty(t, n.try(t, order{Do: "lock", Text: "held"}).Err, "two owners")
				require.NotEmpty(t, s.try(t, order{Do: "lock", Text: "held"}).Err, "two owners")

				v.Kill(t)
				require.Equal(t, v.self, n.deaths(t, 1)[0].Name())
				n.alone(t, 2)
				n.must(t, order{Do: "lock", Text: "held"})
			})
		}
	}
}

// TestReusedDescriptorAccusesNobody: after a mistaken close, a descriptor number of a process
// refers to another file. The process must not mark a live peer dead because of that, and must
// still notice deaths through its other descriptors.
func TestReusedDescriptorAccusesNobody(t *testing.T) {
	ta := newTestArena(t, 6)
	other := t.TempDir() + "/other"
	require.NoError(t, os.WriteFile(other, make([]byte, 1<<16), 0o600))
	// The deaths of these participants can only be seen from their byte locks.
	s, one, two := ta.join(t, "survivor"), ta.join(t, "one", without("robust")), ta.join(t, "two", without("robust"))
	one.must(t, order{Do: "lock", Text: "held"})
	s.must(t, order{Do: "lose the lock", Text: other})
	for range 3 {
		require.Zero(t, s.must(t, order{Do: "dead", Name: one.self}).N)
	}
	three := ta.join(t, "three", without("robust"))
	require.Equal(t, []string{"one", "survivor", "three", "two"}, labels(s.alone(t, 4)))
	for _, r := range []*remote{one, two, three} {
		r.must(t, order{Do: "use", Text: "x"})
	}
	three.Kill(t)
	two.Kill(t)
	one.Kill(t)
	require.Len(t, s.deaths(t, 3), 3)
	s.alone(t, 1)
	s.must(t, order{Do: "lock", Text: "held"})
}

// TestLostDescriptorsSpareOtherFiles checks that an arena leaves another file alone if all descriptors of the arena
// refer to this other file, by a mistake of the program. The arena reserves no memory in the other file, and neither
// Close nor the garbage collector closes the descriptors. The arena stays usable, and PathState still finds its file.
// The last Close removes the file of an ephemeral arena, and writes the file of a durable arena back to its disk.
func TestLostDescriptorsSpareOtherFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, life := range []Lifetime{LifetimeEphemeral, LifetimeDurable} {
		opts := &Options{Size: 2 << 20, MaxParticipants: 4, Lifetime: life}
		a, err := Open("./jobs", opts)
		require.NoError(t, err)
		disk := outlivesBoot(a.seg.File())
		other, err := unix.MemfdCreate("other", unix.MFD_CLOEXEC)
		require.NoError(t, err)
		defer unix.Close(other)
		require.NoError(t, unix.Ftruncate(other, 2<<20))
		var lost []int
		for _, f := range []*os.File{a.lock, a.seg.File(), a.home.dir} {
			lost = append(lost, int(f.Fd()))
			require.NoError(t, unix.Dup3(other, int(f.Fd()), unix.O_CLOEXEC))
		}
		_, err = a.Alloc(1<<20, 1)
		require.NoError(t, err)
		require.Equal(t, PathThere, a.PathState())
		number := a.epochWord().number()
		require.NoError(t, a.Close())
		for range 3 {
			runtime.GC()
		}
		for _, fd := range lost {
			var st unix.Stat_t
			require.NoError(t, unix.Fstat(fd, &st))
			require.Zero(t, st.Blocks)
			require.NoError(t, unix.Close(fd))
		}
		if life == LifetimeEphemeral {
			require.NoFileExists(t, "jobs")
			continue
		}
		a, err = Open("./jobs", opts)
		require.NoError(t, err)
		if disk {
			require.Equal(t, number, a.u32(hdrSynced).Load())
		}
		require.NoError(t, a.Close())
	}
}

// TestDeclaredDeadIsTold: a process that was marked dead by mistake, by a peer or by the kernel,
// ends itself at once.
func TestDeclaredDeadIsTold(t *testing.T) {
	ta := newTestArena(t, 4)
	a, err := Create(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	for _, feature := range []string{"", "waitv", "robust"} {
		v := ta.join(t, "victim", without(feature), proctest.Limit(bound()))
		i := v.self.Slot()
		w := a.slotState(i)
		require.Equal(t, phaseLive, w.phase())
		v.must(t, order{Do: "fenced"}) // so that declareDead succeeds without a check of the byte lock, which v holds
		require.True(t, a.declareDead(i, w))
		e := v.Wait(t)
		require.False(t, e.OK())
		require.Contains(t, v.Stderr(), "this process was declared dead by a peer")
		a.reapMarked(i, w.with(phaseDead))
		pollFor(t, a, func() bool { a.reapMarked(i, w.with(phaseDead)); return a.slotState(i).phase() == phaseFree })
	}
}
