package shm

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/proctest"
)

// bindNode0 places s on node 0. It skips the test if the system forbids placement.
func bindNode0(t *testing.T, s *Segment) Placement {
	pl := s.Place(0, s.Size(), Policy{Mode: PolicyBind, Nodes: []int{0}})
	if errors.Is(pl.Err, ErrNotSupported) {
		t.Skipf("needs a system that lets it place memory with mbind: %v", pl.Err)
	}
	return pl
}

func TestPlace(t *testing.T) {
	name := uniqueName(t)
	s, err := Create(name, 4*page, greet, nil)
	require.NoError(t, err)
	closing(t, s)
	pl := bindNode0(t, s)
	require.NoError(t, pl.Err)
	require.True(t, pl.Verified)
	pages := int(s.Size() / s.pageSize)
	require.Equal(t, map[int]int{0: pages}, pl.Nodes)
	require.True(t, greeted(s))

	// A range is widened to whole pages.
	pl = s.Place(page+1, 1, Policy{Mode: PolicyInterleave, Nodes: []int{0}})
	require.NoError(t, pl.Err)
	require.EqualValues(t, page, pl.Off)
	require.EqualValues(t, s.pageSize, pl.Len)
	require.Equal(t, map[int]int{0: 1}, pl.Nodes)

	// The range is empty, or the policy is the default.
	require.NoError(t, s.Place(page, 0, Policy{}).Err)
	require.NoError(t, s.Place(0, s.Size(), Policy{}).Err)
	require.Len(t, s.Placement(), 4)
	require.Contains(t, s.String(), "bind:0 at 0+")
}

func TestPlaceRefused(t *testing.T) {
	s, err := CreateMemfd("refused", 4*page, greet, nil)
	require.NoError(t, err)
	closing(t, s)
	bindNode0(t, s)
	pl := s.Place(0, s.Size(), Policy{Mode: PolicyBind, Nodes: []int{63}})
	require.ErrorIs(t, pl.Err, unix.EINVAL)
	require.ErrorContains(t, pl.Err, "bind:63")
	require.ErrorContains(t, pl.Err, s.Name())
	require.ErrorContains(t, pl.Err, "there is no node 63 (nodes: 0")
	require.True(t, pl.Verified, "the error does not keep Place from finding out where the pages are")
	pages := 0
	for _, n := range pl.Nodes { // without a policy, the pages are on the nodes of the CPUs on which this test has run
		pages += n
	}
	require.EqualValues(t, s.Size()/s.pageSize, pages)
	require.Contains(t, pl.String(), "degraded: ")
	require.True(t, greeted(s))

	// Some of the nodes do not exist. The kernel uses the other nodes and returns no error.
	pl = s.Place(0, s.Size(), Policy{Mode: PolicyInterleave, Nodes: []int{0, 63}})
	require.ErrorContains(t, pl.Err, "there is no node 63")
	require.ErrorIs(t, pl.Err, errOthers)
	require.Equal(t, map[int]int{0: int(s.Size() / s.pageSize)}, pl.Nodes)

	require.ErrorIs(t, s.Place(0, s.Size(), Policy{Mode: PolicyBind}).Err, unix.EINVAL)
	require.ErrorIs(t, s.Place(0, s.Size(), Policy{Mode: PolicyBind, Nodes: []int{5000}}).Err, unix.EINVAL)
}

func TestPlaceDisabled(t *testing.T) {
	t.Setenv("SHMSYNC_DISABLE", "robust, mbind")
	s, err := CreateMemfd("disabled", page, nil, &Options{NUMA: Policy{Mode: PolicyBind, Nodes: []int{0}}})
	require.NoError(t, err, "refused placement is no failure")
	closing(t, s)
	require.Len(t, s.Degraded(), 1)
	require.ErrorIs(t, s.Degraded()[0], ErrNotSupported)
	require.ErrorIs(t, s.Degraded()[0], unix.ENOSYS)
	pl := s.Place(0, s.Size(), Policy{Mode: PolicyBind, Nodes: []int{0}})
	require.ErrorIs(t, pl.Err, ErrNotSupported)
	require.False(t, pl.Verified)
	require.Contains(t, pl.String(), "not verified")
	require.NoError(t, s.Place(0, s.Size(), Policy{}).Err, "the default policy, first touch, is never refused")
}

func TestPlaceOnCreate(t *testing.T) {
	bind0 := Policy{Mode: PolicyBind, Nodes: []int{0}}
	s, err := CreateMemfd("placed", 4*page, nil, &Options{NUMA: bind0, Populate: true})
	require.NoError(t, err)
	closing(t, s)
	bindNode0(t, s)
	require.NoError(t, s.Placement()[0].Err)
	require.True(t, s.Placement()[0].Verified)
	require.Empty(t, s.Degraded())

	// Without Populate no page is faulted in, so the nodes of the pages are not known.
	s, err = CreateMemfd("sparse", 4*page, nil, &Options{NUMA: bind0})
	require.NoError(t, err)
	closing(t, s)
	require.NoError(t, s.Placement()[0].Err)
	require.False(t, s.Placement()[0].Verified)
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(int(s.File().Fd()), &st))
	require.Zero(t, st.Blocks)

	s, err = CreateMemfd("absent", page, greet, &Options{NUMA: Policy{Mode: PolicyBind, Nodes: []int{63}}})
	require.NoError(t, err, "refused placement is no failure")
	closing(t, s)
	require.ErrorIs(t, s.Degraded()[0], unix.EINVAL)
}

func TestPlaceInPageCache(t *testing.T) {
	s, err := CreateAt(filepath.Join(proctest.DirNotOn(t, unix.TMPFS_MAGIC), "seg"), page, nil, nil)
	require.NoError(t, err)
	closing(t, s)
	require.False(t, s.canPlace)
	pl := s.Place(0, s.Size(), Policy{Mode: PolicyBind, Nodes: []int{0}})
	require.ErrorIs(t, pl.Err, ErrNotSupported)
	require.NoError(t, s.Place(0, s.Size(), Policy{}).Err)
}
