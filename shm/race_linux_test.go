package shm

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/proctest"
)

func TestCreateRaceGoroutines(t *testing.T) {
	eachCreation(t, func(t *testing.T) {
		for round := range 20 {
			path := filepath.Join(t.TempDir(), "seg"+strconv.Itoa(round))
			var wg sync.WaitGroup
			var made atomic.Int32
			start := make(chan struct{})
			for range 8 {
				wg.Go(func() {
					<-start
					s, created, err := OpenOrCreateAt(path, page, greet, nil)
					if err != nil {
						t.Error(err)
						return
					}
					defer s.Close()
					if created {
						made.Add(1)
					}
					if !greeted(s) {
						t.Error("saw an unfinished segment")
					}
				})
			}
			close(start)
			wg.Wait()
			require.EqualValues(t, 1, made.Load())
			require.Len(t, entries(t, filepath.Dir(path)), 1)
		}
	})
}

type raceResult struct {
	Created bool
	Ino     uint64
	Greeted bool
}

func init() {
	proctest.Register("create/race", func(c *proctest.Child) {
		for {
			c.Ready()
			var name string
			c.Recv(&name)
			if name == "" {
				return
			}
			s, created, err := OpenOrCreate(name, page, greet, nil)
			if err != nil {
				c.Fatal(err)
			}
			_, ino := s.ID()
			c.Say(raceResult{created, ino, greeted(s)})
		}
	})
}

func TestCreateRaceProcesses(t *testing.T) {
	eachCreation(t, func(t *testing.T) {
		procs := make([]*proctest.Proc, 4)
		for i := range procs {
			procs[i] = proctest.Start(t, "create/race")
		}
		for range 25 {
			name := uniqueName(t)
			for _, p := range procs {
				p.Await(t)
			}
			for _, p := range procs {
				p.Send(name)
			}
			created, inodes := 0, map[uint64]bool{}
			for _, p := range procs {
				var r raceResult
				p.Recv(t, &r)
				require.True(t, r.Greeted)
				inodes[r.Ino] = true
				if r.Created {
					created++
				}
			}
			require.Equal(t, 1, created)
			require.Len(t, inodes, 1)
		}
		for _, p := range procs {
			p.Await(t)
			p.Send("")
			p.WaitExit(t)
		}
	})
}

// TestCreateRemoveRace: several processes create and remove a segment of the same name. No call sees an
// unfinished segment or returns an error.
func TestCreateRemoveRace(t *testing.T) {
	eachCreation(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "seg")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 50 {
					s, _, err := OpenOrCreateAt(path, page, greet, nil)
					if err != nil {
						t.Error(err)
						return
					}
					if !greeted(s) {
						t.Error("saw an unfinished segment")
					}
					s.Close()
					if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		require.Empty(t, entries(t, filepath.Dir(path)))
	})
}

// TestSweepRace: a sweeper may remove a temporary file before its creator has locked the file. The
// creation still succeeds.
func TestSweepRace(t *testing.T) {
	t.Setenv("SHMSYNC_DISABLE", "otmpfile")
	dir := t.TempDir()
	dirfd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	defer unix.Close(dirfd)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				sweep(dirfd)
			}
		}
	})
	for i := range 200 {
		s, err := CreateAt(filepath.Join(dir, strconv.Itoa(i)), page, greet, nil)
		if err != nil {
			t.Errorf("creation %d: %v", i, err)
			break
		}
		s.Close()
	}
	close(stop)
	wg.Wait()
	require.Len(t, entries(t, dir), 200)
}

func TestCloseRace(t *testing.T) {
	for range 50 {
		s, err := CreateMemfd("close", 4*page, nil, nil)
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for {
					if err := s.Reserve(0, s.Size()); err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
			wg.Go(func() { s.Place(0, s.Size(), Policy{}) })
			wg.Go(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Zero(t, s.refs.Load())
	}
}
