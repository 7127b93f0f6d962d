package shm

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestReserveRange(t *testing.T) {
	s, err := CreateMemfd("range", 2*page, nil, nil)
	require.NoError(t, err)
	closing(t, s)
	for _, r := range [][2]int64{{-1, 1}, {0, -1}, {0, s.Size() + 1}, {s.Size(), 1}, {1, math.MaxInt64}, {math.MaxInt64, 1}} {
		require.ErrorIs(t, s.Reserve(r[0], r[1]), unix.EINVAL, "%v", r)
		require.ErrorIs(t, s.Place(r[0], r[1], Policy{}).Err, unix.EINVAL, "%v", r)
	}
	require.NoError(t, s.Reserve(s.Size(), 0))
	require.NoError(t, s.Reserve(page+1, 1))
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(int(s.File().Fd()), &st))
	require.Positive(t, st.Blocks)
	require.LessOrEqual(t, st.Blocks*512, int64(page), "reserves what was asked and no more")
}

// TestDiscard: the pages of a discarded range are free, and its bytes are 0. The other bytes stay.
func TestDiscard(t *testing.T) {
	s, err := CreateMemfd("discard", 4*page, nil, nil)
	require.NoError(t, err)
	closing(t, s)
	for i := range s.Bytes() {
		s.Bytes()[i] = 1
	}
	blocks := func() int64 {
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(int(s.File().Fd()), &st))
		return st.Blocks * 512
	}
	require.EqualValues(t, 4*page, blocks())
	require.NoError(t, s.Discard(page, 0))
	require.EqualValues(t, 4*page, blocks())
	require.NoError(t, s.Discard(page-8, page+16))
	require.EqualValues(t, 3*page, blocks())
	require.EqualValues(t, 4*page, s.Size())
	for i, b := range s.Bytes() {
		if gone := i >= page-8 && i < 2*page+8; gone != (b == 0) {
			require.Fail(t, "wrong byte", "%d at %d", b, i)
		}
	}
	for _, r := range [][2]int64{{-1, 1}, {0, -1}, {0, s.Size() + 1}, {math.MaxInt64, 1}} {
		require.ErrorIs(t, s.Discard(r[0], r[1]), unix.EINVAL, "%v", r)
	}
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Discard(0, 1), ErrClosed)
}

// TestAllocateInPieces simulates a kernel in which a signal interrupts every long reservation, and
// every second short reservation.
func TestAllocateInPieces(t *testing.T) {
	var got [][2]int64
	calls := 0
	fallocate := func(off, n int64) error {
		if calls++; n > 10 || calls%2 == 0 {
			return unix.EINTR
		}
		if off >= 95 {
			return unix.ENOSPC
		}
		got = append(got, [2]int64{off, n})
		return nil
	}
	require.NoError(t, allocate(7, 25, 10, 10, fallocate))
	require.Equal(t, [][2]int64{{7, 10}, {17, 10}, {27, 5}}, got)
	require.ErrorIs(t, allocate(85, 20, 10, 10, fallocate), unix.ENOSPC)
	require.Equal(t, [2]int64{85, 10}, got[len(got)-1])
}

// TestAllocateInHalves: if a piece is still interrupted, its size is halved, but not below the least
// size.
func TestAllocateInHalves(t *testing.T) {
	var got []int64
	longest, calls := int64(10), 0
	fallocate := func(_, n int64) error {
		if calls++; n > longest || n <= 10 && calls%3 != 0 {
			return unix.EINTR
		}
		got = append(got, n)
		return nil
	}
	require.NoError(t, allocate(0, 100, 40, 10, fallocate))
	require.Equal(t, []int64{10, 10, 10, 10, 10, 10, 10, 10, 10, 10}, got)
}

// TestReserveInterrupted: signals arrive so often that the reservation cannot be made in one piece.
func TestReserveInterrupted(t *testing.T) {
	s, err := CreateMemfd("interrupted", 64<<20, nil, nil)
	require.NoError(t, err)
	closing(t, s)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, tid := os.Getpid(), unix.Gettid()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				// SIGURG is the signal by which the Go runtime preempts a goroutine.
				if err := unix.Tgkill(pid, tid, unix.SIGURG); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	err = s.Reserve(0, s.Size())
	close(stop)
	wg.Wait()
	require.NoError(t, err)
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(int(s.File().Fd()), &st))
	require.Equal(t, s.Size(), st.Blocks*512)
}

func TestReserveFull(t *testing.T) {
	dir := smallTmpfs(t, "size=1m")
	path := filepath.Join(dir, "seg")
	s, err := CreateAt(path, 4<<20, nil, nil)
	require.NoError(t, err, "a new segment is sparse")
	closing(t, s)
	require.NoError(t, s.Reserve(0, 512<<10))
	copy(s.Bytes(), greeting)
	for range 2 {
		err = s.Reserve(0, 2<<20)
		require.ErrorIs(t, err, ErrNoSpace)
		require.ErrorIs(t, err, unix.ENOSPC)
		require.ErrorContains(t, err, fmt.Sprintf("shared memory is full: could not reserve %d bytes of %s (", 2<<20, path))
		require.ErrorContains(t, err, fmt.Sprintf("(%d bytes free of %d)", 512<<10, 1<<20))
	}
	require.Equal(t, greeting, string(s.Bytes()[:len(greeting)]))
	require.NoError(t, s.Reserve(0, 512<<10), "bytes that are reserved stay reserved")

	pl := s.Place(0, s.Size(), Policy{})
	require.ErrorIs(t, pl.Err, ErrNoSpace)
	require.False(t, pl.Verified)
}

func TestCreateFull(t *testing.T) {
	eachCreation(t, func(t *testing.T) {
		dir := smallTmpfs(t, "size=1m")
		path := filepath.Join(dir, "seg")
		for what, opts := range map[string]*Options{
			"populate": {Populate: true},
			"lock":     {Lock: true},
			"placed":   {Populate: true, NUMA: Policy{Mode: PolicyBind, Nodes: []int{0}}},
		} {
			_, err := CreateAt(path, 2<<20, nil, opts)
			require.ErrorIs(t, err, ErrNoSpace, what)
			require.Empty(t, entries(t, dir), what)
		}
		_, err := CreateAt(path, 2<<20, greet, nil)
		require.ErrorIs(t, err, unix.ENOSPC, "init reserves")
		require.Empty(t, entries(t, dir))
		s, err := CreateAt(path, 512<<10, greet, nil)
		require.NoError(t, err, "failures must give back their space")
		closing(t, s)
		again, err := OpenAt(path, &Options{Populate: true})
		require.NoError(t, err)
		closing(t, again)
		_, err = OpenAt(filepath.Join(dir, "none"), nil)
		require.ErrorIs(t, err, fs.ErrNotExist)
	})
}

func TestCreateNoInodes(t *testing.T) {
	eachCreation(t, func(t *testing.T) {
		dir := smallTmpfs(t, "size=1m,nr_inodes=2") // the directory uses one of the inodes
		first, err := CreateAt(filepath.Join(dir, "seg"), page, nil, nil)
		require.NoError(t, err)
		closing(t, first)
		_, err = CreateAt(filepath.Join(dir, "more"), page, nil, nil)
		require.ErrorIs(t, err, ErrNoSpace)
		require.ErrorIs(t, err, unix.ENOSPC)
		require.Equal(t, []string{"seg"}, entries(t, dir))
	})
}

func TestPopulateAndLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seg")
	s, err := CreateAt(path, 16*page, greet, &Options{Populate: true})
	require.NoError(t, err)
	closing(t, s)
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(int(s.File().Fd()), &st))
	require.GreaterOrEqual(t, st.Blocks*512, s.Size())

	locked, err := OpenAt(path, &Options{Lock: true})
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit))
	if err != nil && limit.Cur < uint64(s.Size()) {
		require.ErrorContains(t, err, "RLIMIT_MEMLOCK")
		t.Skipf("needs an RLIMIT_MEMLOCK of the segment's size; it is %d", limit.Cur)
	}
	require.NoError(t, err)
	closing(t, locked)
	require.True(t, greeted(locked), "faulting pages in must not change them")
	touch(locked.Bytes(), locked.pageSize)
	require.True(t, greeted(locked), "faulting pages in must not change them")
}
