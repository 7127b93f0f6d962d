package shm

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/proctest"
)

// placeSeen is what a child process sees of the pages of a segment. The child has the segment as file
// 0.
type placeSeen struct {
	Parts []string
	Err   string
	Huge  int64
}

func init() {
	proctest.Register("shm/where", func(c *proctest.Child) {
		s, err := FromFile(c.File(0), nil)
		if err != nil {
			c.Fatal(err)
		}
		c.Say(look(s))
	})
	proctest.Register("shm/place", func(c *proctest.Child) {
		var p struct {
			Off, Len int64
			Policy   string
		}
		c.Params(&p)
		s, err := FromFile(c.File(0), nil)
		if err != nil {
			c.Fatal(err)
		}
		policy, err := ParsePolicy(p.Policy)
		if err != nil {
			c.Fatal(err)
		}
		if pl := s.Place(p.Off, p.Len, policy); pl.Err != nil {
			c.Fatal(pl.Err)
		}
	})
}

// look returns what Where reports about all of s.
func look(s *Segment) (seen placeSeen) {
	parts, err := s.Where(0, s.Size())
	if err != nil {
		seen.Err = err.Error()
	}
	for _, part := range parts {
		seen.Parts = append(seen.Parts, part.String())
	}
	seen.Huge, _ = s.HugeBytes()
	return seen
}

// TestWhereElsewhere: one process places memory. Other processes can find out where it is, although
// neither they nor the creator of the segment have touched it.
func TestWhereElsewhere(t *testing.T) {
	s, err := CreateMemfd("where", 4*page, nil, nil)
	require.NoError(t, err)
	closing(t, s)
	bindable(t)
	proctest.Start(t, "shm/place", proctest.Files(s.File()), proctest.Params(map[string]any{
		"Off": page, "Len": 2 * page, "Policy": "interleave:0",
	})).WaitExit(t)
	one := page / s.pageSize
	want := []string{
		Placement{Off: 0, Len: page, Absent: int(one)}.String(),
		Placement{Off: page, Len: 2 * page, Asked: Policy{PolicyInterleave, []int{0}}, Nodes: map[int]int{0: int(2 * one)}, Verified: true}.String(),
		Placement{Off: 3 * page, Len: page, Absent: int(one)}.String(),
	}
	var seen placeSeen
	p := proctest.Start(t, "shm/where", proctest.Files(s.File()))
	p.Recv(t, &seen)
	p.WaitExit(t)
	require.Empty(t, seen.Err)
	require.Equal(t, want, seen.Parts)
	require.Equal(t, want, look(s).Parts)
	require.Equal(t, 2*page, blocks(t, s), "looking makes no page")
}

// bindable skips the test if the system forbids the placement of memory.
func bindable(t *testing.T) {
	s, err := CreateMemfd("bindable", page, nil, nil)
	require.NoError(t, err)
	bindNode0(t, s)
	require.NoError(t, s.Close())
}

// blocks returns how much memory backs s, in bytes.
func blocks(t *testing.T, s *Segment) int {
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(int(s.File().Fd()), &st))
	return int(st.Blocks) * 512
}

func TestWhereOfParts(t *testing.T) {
	bindable(t)
	bind0, local := Policy{Mode: PolicyBind, Nodes: []int{0}}, Policy{Mode: PolicyLocal}
	s, err := Create(uniqueName(t), 4*page, nil, &Options{
		NUMA: Policy{Mode: PolicyInterleave, Nodes: []int{0}}, Populate: true,
		Parts: []Part{{0, 2 * page, local}, {page, page, bind0}},
	})
	require.NoError(t, err)
	closing(t, s)
	require.Empty(t, s.Degraded())
	parts, err := s.Where(0, s.Size())
	require.NoError(t, err)
	var asked []string
	for _, part := range parts {
		require.NoError(t, part.Err)
		require.True(t, part.Verified, part)
		asked = append(asked, part.Asked.String())
	}
	require.Equal(t, []string{"local", "bind:0", "interleave:0"}, asked)
	require.EqualValues(t, page, parts[1].Off)
	require.EqualValues(t, 2*page, parts[2].Len)
	require.Len(t, s.Placement(), 3)
	require.True(t, s.Placement()[2].Verified)
	require.False(t, s.Placement()[0].Verified, "later parts cover some of the range")

	// Where widens a part to whole pages. For an empty range it returns nothing.
	parts, err = s.Where(page+1, 1)
	require.NoError(t, err)
	require.Len(t, parts, 1)
	require.EqualValues(t, s.pageSize, parts[0].Len)
	parts, err = s.Where(page, 0)
	require.NoError(t, err)
	require.Empty(t, parts)
	_, err = s.Where(page, s.Size())
	require.ErrorIs(t, err, unix.EINVAL)
}

func TestPartsThatAreNone(t *testing.T) {
	bind0 := Policy{Mode: PolicyBind, Nodes: []int{0}}
	for _, part := range []Part{
		{4 * page, page, bind0}, {-page, page, bind0}, {0, 5 * page, bind0}, {1, page, bind0}, {0, page + 1, bind0}, {page, 0, bind0},
		{0, page, Policy{Mode: PolicyBind}},
	} {
		_, err := CreateMemfd("part", 4*page, nil, &Options{Parts: []Part{part}})
		require.ErrorIs(t, err, unix.EINVAL, "%v", part)
	}
}

// TestWhereInPageCache: if the page cache ignores a policy, Where does not report it.
func TestWhereInPageCache(t *testing.T) {
	s, err := CreateAt(filepath.Join(proctest.DirNotOn(t, unix.TMPFS_MAGIC), "seg"), page, nil, nil)
	require.NoError(t, err)
	closing(t, s)
	copy(s.Bytes(), greeting) // ramfs cannot reserve
	require.False(t, s.canPlace)
	bindable(t)
	pl := s.Place(0, s.Size(), Policy{Mode: PolicyBind, Nodes: []int{0}})
	require.ErrorContains(t, pl.Err, s.Name())
	require.ErrorContains(t, pl.Err, "only tmpfs")
	parts, err := s.Where(0, s.Size())
	require.NoError(t, err)
	require.Len(t, parts, 1)
	require.Equal(t, Policy{}, parts[0].Asked)
	require.True(t, parts[0].Verified)
}

func TestWhereDisabled(t *testing.T) {
	s, err := CreateMemfd("disabled", page, greet, nil)
	require.NoError(t, err)
	closing(t, s)
	t.Setenv("SHMSYNC_DISABLE", "mbind")
	_, err = s.Where(0, s.Size())
	require.ErrorIs(t, err, ErrNotSupported)
	require.ErrorContains(t, err, s.Name())
	require.NoError(t, s.Place(0, s.Size(), Policy{Mode: PolicyLocal}).Err, "the local policy, first touch, is never refused")
}

func TestWhereAfterClose(t *testing.T) {
	s, err := CreateMemfd("closed", page, nil, nil)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = s.Where(0, page)
	require.ErrorIs(t, err, ErrClosed)
	_, err = s.HugeBytes()
	require.ErrorIs(t, err, ErrClosed)
}

// TestPlaceMoves: Place moves pages that exist to the nodes of the policy, even if this process has not
// touched them. The test needs two nodes.
func TestPlaceMoves(t *testing.T) {
	memory, ok := nodesOf("has_memory")
	if allowed, known := memsAllowed(); !ok || len(memory) < 2 || known && len(allowed) < 2 {
		t.Skip("needs two NUMA nodes with memory")
	}
	bindable(t)
	s, err := CreateMemfd("moves", 4*page, nil, nil)
	require.NoError(t, err)
	closing(t, s)
	for _, node := range []int{memory[0], memory[1], memory[0]} {
		at := Policy{Mode: PolicyBind, Nodes: []int{node}}
		proctest.Start(t, "shm/place", proctest.Files(s.File()), proctest.Params(map[string]any{
			"Len": s.Size(), "Policy": at.String(),
		})).WaitExit(t)
		parts, err := s.Where(0, s.Size())
		require.NoError(t, err)
		require.Len(t, parts, 1)
		require.Equal(t, map[int]int{node: int(s.Size() / s.pageSize)}, parts[0].Nodes)
	}
	pl := s.Place(0, s.Size(), Policy{Mode: PolicyInterleave, Nodes: memory[:2]})
	require.NoError(t, pl.Err)
	half := int(s.Size()/s.pageSize) / 2
	require.Equal(t, map[int]int{memory[0]: half, memory[1]: half}, pl.Nodes)
}
