//go:build linux

package arenakernel

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

// placeBytes is the size of the blocks that are placed here.
const placeBytes = 4 * chunkSize

func init() {
	// "place" allocates a block and places it according to the policy in Text. N in the answer is the
	// offset of the block.
	agentOrders["place"] = func(s *agent, o order, a *answer) error {
		p, err := shm.ParsePolicy(o.Text)
		if err != nil {
			return err
		}
		off, err := s.arena.Alloc(placeBytes, MaxAlign)
		if err != nil {
			return err
		}
		a.N = int64(off)
		return s.arena.Place(off, placeBytes, p).Err
	}
	// "where" returns on which nodes the block at offset N is.
	agentOrders["where"] = func(s *agent, o order, a *answer) error {
		parts, err := s.arena.Where(Offset(o.N), placeBytes)
		for _, part := range parts {
			a.Text += part.String() + "\n"
		}
		return err
	}
}

// TestPlaceElsewhere: one participant places a block. Another participant, which has not touched the
// block, learns where the block is and which policy was requested.
func TestPlaceElsewhere(t *testing.T) {
	ta := newTestArena(t, 4)
	one, other := ta.join(t, "one"), ta.join(t, "other")
	r := one.try(t, order{Do: "place", Text: "bind:0"})
	if slices.Contains(r.Is, "unsupported") {
		t.Skip("needs a kernel and a sandbox that let it place memory with mbind: " + r.Err)
	}
	require.Empty(t, r.Err)
	off := int(r.N)
	r = other.must(t, order{Do: "where", N: off})
	require.Regexp(t, `^bind:0 at `+strconv.Itoa(off)+`\+262144: (\d+) pages verified, (\d+) on node 0\n$`, r.Text)

	// If a node does not exist, the error names it, and the block stays where it was.
	r = other.try(t, order{Do: "place", Text: "preferred:63"})
	require.Equal(t, []string{"EINVAL"}, r.Is)
	require.Contains(t, r.Err, "preferred:63")
	require.Contains(t, r.Err, "no node 63")
	require.Contains(t, r.Err, ta.name)

	// An offset beyond the arena is an error.
	r = other.try(t, order{Do: "where", N: 1 << 30})
	require.Equal(t, []string{"EINVAL"}, r.Is)
}

// TestPlacedArena: Options.NUMA applies to everything that any participant allocates later. If the host
// cannot follow the policy, an error is reported.
func TestPlacedArena(t *testing.T) {
	a, err := Create(newTestArena(t, 2).name, &Options{Size: 4 << 20, NUMA: shm.Policy{Mode: shm.PolicyInterleave, Nodes: []int{0}}})
	require.NoError(t, err)
	defer a.Close()
	if d := a.Segment().Degraded(); len(d) > 0 {
		require.ErrorIs(t, d[0], shm.ErrNotSupported)
		t.Skipf("needs a kernel and a sandbox that let it place memory with mbind: %v", d[0])
	}
	off, err := a.Alloc(placeBytes, MaxAlign)
	require.NoError(t, err)
	parts, err := a.Where(off, placeBytes)
	require.NoError(t, err)
	require.Len(t, parts, 1)
	require.Equal(t, "interleave:0", parts[0].Asked.String())
	require.Empty(t, parts[0].Nodes, "nobody wrote there yet")
	for i := range At[[placeBytes]byte](a, off) {
		At[[placeBytes]byte](a, off)[i] = 1
	}
	parts, err = a.Where(off, placeBytes)
	require.NoError(t, err)
	require.True(t, parts[0].Verified, parts[0])
	require.Zero(t, parts[0].Absent)
}

// TestHugePageArena: an arena in pages of 2 MiB works like any other arena. Participants join it by its
// descriptor, and the death of a participant is noticed.
func TestHugePageArena(t *testing.T) {
	seg, err := shm.CreateMemfd("huge", 4<<20, func(s *shm.Segment) error { return Format(s, &Options{Size: s.Size(), MaxParticipants: 4}) },
		&shm.Options{HugePages: shm.Huge2M})
	if err != nil {
		require.True(t, errors.Is(err, shm.ErrNoSpace) || errors.Is(err, shm.ErrNotSupported), "%v", err)
		require.Empty(t, os.Getenv("SHMSYNC_NEED_HUGE_PAGES"), err)
		t.Skipf("needs two free huge pages of 2 MiB (sysctl vm.nr_hugepages=8): %v", err)
	}
	defer seg.Close()
	ta := &testArena{name: inherited}
	one, other := ta.join(t, "one", proctest.Files(seg.File())), ta.join(t, "other", proctest.Files(seg.File()))
	one.must(t, order{Do: "lock", Text: "held"})
	other.alone(t, 2)
	one.Kill(t)
	require.Equal(t, "one", other.deaths(t, 1)[0].Label)
	other.alone(t, 1)
	n, err := seg.HugeBytes()
	require.NoError(t, err)
	require.Positive(t, n)
}

// TestHugePagesArePlaced: huge pages are placed according to the policy of the arena. It does not
// matter which participant takes them from the pool.
func TestHugePagesArePlaced(t *testing.T) {
	for node := range 4 {
		seg, err := shm.CreateMemfd("huge", 4<<20, func(s *shm.Segment) error { return Format(s, &Options{Size: s.Size()}) },
			&shm.Options{HugePages: shm.Huge2M, NUMA: shm.Policy{Mode: shm.PolicyBind, Nodes: []int{node}}})
		if err != nil || len(seg.Degraded()) > 0 {
			continue // the node does not exist, or its pool is empty
		}
		a, err := FromSegment(seg, nil)
		require.NoError(t, err)
		parts, err := a.Where(0, 4<<20)
		require.NoError(t, err)
		require.Len(t, parts, 1)
		require.NoError(t, parts[0].Err)
		require.Equal(t, map[int]int{node: 2}, parts[0].Nodes)
		require.NoError(t, a.Close())
	}
}
