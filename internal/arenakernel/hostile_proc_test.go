//go:build linux

package arenakernel

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

func init() {
	// "become" gives up root privileges and becomes user N.
	agentOrders["become"] = func(s *agent, o order, a *answer) error { return syscall.Setresuid(o.N, o.N, o.N) }

	// "suffer" opens an arena, uses it as far as possible, and leaves. The operations may return
	// errors. They may also panic with a message about a mistake of the caller, because the bytes
	// of a peer can make a correct call look like a mistake.
	agentOrders["suffer"] = func(s *agent, o order, a *answer) error {
		x, err := Open(o.Arena, nil)
		if err != nil {
			if !isAny(err, shmsync.ErrCorrupt, shmsync.ErrNoSpace, shmsync.ErrIncompatible) {
				return err
			}
			return nil
		}
		x.OnDeath(func(Participant) {})
		for range 1 + o.N {
			suffer(x)
		}
		return x.Close()
	}
	agentOrders["scribble"] = func(s *agent, o order, a *answer) error {
		seg, err := shm.Open(o.Arena, nil)
		if err != nil {
			return err
		}
		rng := rand.New(rand.NewPCG(uint64(o.N), 1))
		go func() {
			for {
				scribbleAt(seg.Bytes(), rng, o.Text)
			}
		}()
		return nil
	}
}

func suffer(a *Arena) {
	defer func() {
		if r := recover(); r != nil && !strings.HasPrefix(fmt.Sprint(r), "shmsync: arena ") {
			panic(r)
		}
	}()
	useArena(a, "x")
	a.Check()
	a.Stats()
	for p := range a.Participants() {
		a.Who(p.Name())
		a.Dead(p.Name())
		_ = p.Identity.String()
	}
	for o := range a.Objects() {
		_ = o.String()
	}
}

// regions are the parts of an arena into which the hostile peer writes.
var regions = map[string]func(g geometry) (from, to uint64){
	"slots":         func(g geometry) (uint64, uint64) { return g.slotsOff + 3*slotStride, g.slotsOff + 6*slotStride },
	"death records": func(g geometry) (uint64, uint64) { return g.deathRecordOff, g.dirOff },
	"directory":     func(g geometry) (uint64, uint64) { return g.dirOff, g.chunksOff },
	"chunk words":   func(g geometry) (uint64, uint64) { return g.chunksOff, g.chunksOff + 8*g.chunkCount },
	"block words":   func(g geometry) (uint64, uint64) { return g.blocksOff, g.blocksOff + 3*blockWords*blockWordSize },
	"objects":       func(g geometry) (uint64, uint64) { return g.heapOff, g.heapOff + 3*chunkSize },
	"counters":      func(geometry) (uint64, uint64) { return hdrDeathRecordsTotal, hdrChunkHint + 8 },
}

// scribbleAt writes a random word at a random place in a region. The word may look correct.
func scribbleAt(b []byte, rng *rand.Rand, region string) {
	geo, err := validate(b, uint64(len(b)), "scribbled")
	if err != nil {
		panic(err)
	}
	m := newMemory(b)
	from, to := regions[region](geo)
	off := Offset(from + rng.Uint64N((to-from)/8)*8)
	var v uint64
	switch rng.IntN(6) {
	case 0:
		v = rng.Uint64()
	case 1:
		v = rng.Uint64N(64)
	case 2: // the state of a slot, or an ID with additional bits set
		v = rng.Uint64N(8) | rng.Uint64N(4)<<3 | rng.Uint64N(8)<<32 | rng.Uint64N(4)<<43
	case 3: // an offset
		v = rng.Uint64N(geo.size) &^ 63
	case 4: // a copy of a word of the same region
		v = m.u64(Offset(from + rng.Uint64N((to-from)/8)*8)).Load()
	case 5:
		v = m.u64(off).Load() ^ 1<<rng.Uint64N(64)
	}
	m.u64(off).Store(v)
}

// TestScribbledArena: a peer writes random words into an arena, before or during the opening. An
// agent that opens and uses the arena must not panic, fault or hang.
func TestScribbledArena(t *testing.T) {
	rounds := proctest.Rounds(2, 12)
	for region := range regions {
		for _, when := range []string{"before", "meanwhile"} {
			t.Run(region+" "+when, func(t *testing.T) {
				t.Parallel()
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				rng := rand.New(rand.NewPCG(seed, 0))
				ta := newTestArena(t, 6)
				// The arena also contains the traces of a death.
				v := ta.join(t, "victim")
				v.must(t, order{Do: "use", Text: "used"})
				v.must(t, order{Do: "lock", Text: "held"})
				v.Kill(t)
				template, err := os.ReadFile(ta.path())
				require.NoError(t, err)
				sufferer := ta.start(t)
				if when == "meanwhile" {
					peer := ta.start(t)
					// The peer does not write into the first slots, because a process whose own slot was marked
					// dead ends itself.
					require.Empty(t, peer.must(t, order{Do: "scribble", Arena: ta.name, Text: region, N: int(seed >> 33)}).Err)
					a := sufferer.try(t, order{Do: "suffer", Arena: ta.name, N: 3 * rounds})
					require.Empty(t, a.Err)
					peer.Kill(t)
					return
				}
				for range rounds {
					b := append([]byte(nil), template...)
					for range 1 + rng.IntN(300) {
						scribbleAt(b, rng, region)
					}
					require.NoError(t, os.WriteFile(ta.path(), b, 0o600))
					a := sufferer.try(t, order{Do: "suffer", Arena: ta.name})
					require.Empty(t, a.Err)
				}
			})
		}
	}
}

// copyFile copies a file with its holes, as cp does.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	require.NoError(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	require.NoError(t, err)
	defer out.Close()
	_, err = io.Copy(out, in)
	require.NoError(t, err)
}

// TestCopiedArena: an arena is copied while it is in use. In the copy, the slots say that all
// participants are alive, although none of them uses the copy. A process that opens the copy must
// find that out.
func TestCopiedArena(t *testing.T) {
	for _, slots := range []int{2, 6} {
		t.Run(fmt.Sprintf("2 of %d", slots), func(t *testing.T) {
			ta, copied := newTestArena(t, slots), newTestArena(t, slots)
			one, two := ta.join(t, "one"), ta.join(t, "two")
			one.must(t, order{Do: "lock", Text: "first"})
			two.must(t, order{Do: "lock", Text: "second"})
			copyFile(t, ta.path(), copied.path())

			n := copied.join(t, "newcomer")
			require.Equal(t, []string{"newcomer"}, labels(n.alone(t, 1)))
			for _, phantom := range []ParticipantID{one.self, two.self} {
				require.EqualValues(t, 1, n.must(t, order{Do: "dead", Name: phantom}).N)
			}
			n.must(t, order{Do: "lock", Text: "first"})
			n.must(t, order{Do: "lock", Text: "second"})
			n.stats(t)

			require.Equal(t, []string{"one", "two"}, labels(one.alone(t, 2)))
			require.NotEmpty(t, two.try(t, order{Do: "lock", Text: "first"}).Err)
			one.must(t, order{Do: "use", Text: "x"})
			two.must(t, order{Do: "use", Text: "x"})
		})
	}
}

const nobody = 65534

// userExists reports whether this user namespace has a user with the given ID.
func userExists(t *testing.T, uid int) bool {
	t.Helper()
	ranges, err := os.ReadFile("/proc/self/uid_map")
	require.NoError(t, err)
	for line := range strings.Lines(string(ranges)) {
		var first, outside, n int
		_, err := fmt.Sscan(line, &first, &outside, &n)
		require.NoError(t, err, line)
		if first <= uid && uid < first+n {
			return true
		}
	}
	return false
}

// startAs starts an agent that runs as a user other than root.
func (ta *testArena) startAs(t *testing.T, uid int) *remote {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: its processes take the ids of other users")
	}
	if !userExists(t, uid) {
		t.Skipf("needs a user namespace that has the user %d", uid)
	}
	r := ta.start(t)
	r.must(t, order{Do: "become", N: uid})
	return r
}

func TestNoPermission(t *testing.T) {
	ta := newTestArena(t, 4)
	s := ta.join(t, "owner")
	r := ta.startAs(t, nobody)
	refused := func() {
		t.Helper()
		a := r.try(t, order{Do: "open", Arena: ta.name})
		require.Equal(t, []string{"permission"}, a.Is, a.Err)
		require.Contains(t, a.Err, ta.path())
		require.Contains(t, a.Err, "permission denied")
	}
	refused()
	require.NoError(t, os.Chmod(ta.path(), 0o444))
	refused()
	s.alone(t, 1)
	// With write permission, the agent joins, because it trusts root. Each of the two participants
	// must notice the death of the other.
	require.NoError(t, os.Chmod(ta.path(), 0o666))
	r.open(t, ta, "nobody")
	people := s.alone(t, 2)
	require.Equal(t, nobody, people[1].UID)
	require.Equal(t, "robust", people[1].Notice)
	r.must(t, order{Do: "use", Text: "x"})
	r.must(t, order{Do: "lock", Text: "held"})
	s.Kill(t)
	require.Equal(t, "owner", r.deaths(t, 1)[0].Label)
	r.alone(t, 1)
	s = ta.join(t, "owner again")
	r.Kill(t)
	require.Equal(t, "nobody", s.deaths(t, 1)[0].Label)
	s.must(t, order{Do: "lock", Text: "held"})
}

func TestForeignOwner(t *testing.T) {
	ta := newTestArena(t, 4)
	ta.opts.Mode = 0o666
	maker := ta.startAs(t, nobody)
	maker.open(t, ta, "maker")
	maker.must(t, order{Do: "fenced"}) // from here on, maker changes the arena only on orders
	before := fingerprint(t, ta.path())
	for how, attempt := range attempts {
		if how == "FromSegment" {
			continue // this attempt opens the segment with the permission of another user
		}
		_, err := attempt(ta.name, nil)
		require.ErrorIs(t, err, os.ErrPermission, how)
		require.ErrorContains(t, err, ta.path())
		require.ErrorContains(t, err, "owned by uid 65534")
	}
	require.Equal(t, before, fingerprint(t, ta.path()))
	other := ta.startAs(t, nobody-1)
	a := other.try(t, order{Do: "open", Arena: ta.name})
	require.Equal(t, []string{"permission"}, a.Is, a.Err)
	ta.opts.TrustUIDs = []uint32{nobody}
	trusting := ta.join(t, "trusting")
	trusting.must(t, order{Do: "use", Text: "x"})
	maker.Signal(t, unix.SIGKILL)
	require.Equal(t, "maker", trusting.deaths(t, 1)[0].Label)
}

// TestTruncatedUnderALiveArena: the file of an arena is truncated or enlarged. An agent then opens
// the file, and must get an error. The agent is a separate process, so the test would notice a
// crash.
func TestTruncatedUnderALiveArena(t *testing.T) {
	ta := newTestArena(t, 4)
	s := ta.join(t, "s")
	s.close(t)
	for _, size := range []int64{4096, 64 << 10, 2<<20 - 4096, 2<<20 + 4096} {
		require.NoError(t, os.Truncate(ta.path(), size))
		a := s.try(t, order{Do: "open", Arena: ta.name})
		require.Equal(t, []string{"corrupt"}, a.Is, a.Err)
		require.Contains(t, a.Err, fmt.Sprint(size))
		require.Contains(t, a.Err, ta.path())
	}
	// The file has its size again, but its contents are lost: all bytes after the header are zero.
	require.NoError(t, os.Truncate(ta.path(), 4096))
	require.NoError(t, os.Truncate(ta.path(), 2<<20))
	s.open(t, ta, "s")
	s.must(t, order{Do: "use", Text: "x"})
	s.stats(t)
}

// TestRaceToCreate: processes race to create an arena and to join it, and all of them become
// participants.
func TestRaceToCreate(t *testing.T) {
	rounds := proctest.Rounds(1, 6)
	for range rounds {
		ta := newTestArena(t, 6)
		var all []*remote
		for range 6 {
			all = append(all, ta.start(t))
		}
		for _, r := range all {
			r.Send(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
		}
		seen := map[ParticipantID]bool{}
		for _, r := range all {
			var a answer
			r.Recv(t, &a)
			require.Empty(t, a.Err)
			require.False(t, seen[a.Self])
			seen[a.Self] = true
		}
		all[0].alone(t, 6)
		for _, r := range all {
			r.Send(order{Do: "close"})
		}
		for _, r := range all {
			var a answer
			r.Recv(t, &a)
			require.Empty(t, a.Err)
		}
	}
}

// TestRemovedName: a process that joins by name after the file with that name was removed gets
// another arena.
func TestRemovedName(t *testing.T) {
	ta := newTestArena(t, 4)
	one := ta.join(t, "one")
	require.NoError(t, shm.Remove(ta.name))
	two := ta.join(t, "two")
	require.Equal(t, []string{"one"}, labels(one.alone(t, 1)))
	require.Equal(t, []string{"two"}, labels(two.alone(t, 1)))
	one.must(t, order{Do: "use", Text: "x"})
	two.must(t, order{Do: "use", Text: "x"})
}
