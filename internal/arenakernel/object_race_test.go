//go:build linux

package arenakernel

import (
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

func TestRacingMakersGetOneObject(t *testing.T) {
	const makers = 8
	p := newNeighbours(2<<20, makers)
	var as []*Arena
	for i := range makers {
		as = append(as, p.join(i+1))
	}
	rounds := proctest.Rounds(60, 300)
	for round := range rounds {
		name := fmt.Sprint("round ", round%3)
		var created atomic.Int32
		var got [makers]Object
		var errs [makers]error
		var wg sync.WaitGroup
		for i, a := range as {
			wg.Go(func() {
				o, made, err := a.OpenObject(spec(name))
				if made {
					created.Add(1)
				}
				got[i], errs[i] = o, err
			})
		}
		wg.Wait()
		for i, a := range as {
			require.NoError(t, errs[i])
			require.Equal(t, got[0], got[i])
			a.CloseObject(got[i])
		}
		require.EqualValues(t, 1, created.Load())
		require.NoError(t, as[round%makers].Delete(name))
	}
	requireSound(t, as[0])
	s := as[0].Stats()
	require.Zero(t, s.Objects+s.Claimed)
}

// TestNamesUnderChurn: participants create, open and delete objects of a few names. All participants
// that have a name open at the same time have the same object, and it is not deleted meanwhile.
func TestNamesUnderChurn(t *testing.T) {
	const members, names = 6, 2
	p := newNeighbours(2<<20, members)
	rounds := proctest.Rounds(400, 3000)
	var open [names]struct {
		sync.Mutex
		off  Offset
		refs int
	}
	var made atomic.Int64 // objects created minus objects deleted
	var wg sync.WaitGroup
	errs := make(chan error, members*4)
	fail := func(err error) {
		select {
		case errs <- err:
		default:
		}
	}
	for i := range members {
		a := p.join(i + 1)
		wg.Go(func() {
			for round := range rounds {
				k := (round + i) % names
				name := fmt.Sprint("name ", k)
				o, created, err := a.OpenObject(spec(name))
				if err != nil {
					fail(err)
					return
				}
				s := &open[k]
				s.Lock()
				if s.refs > 0 && s.off != o.Offset {
					fail(fmt.Errorf("%s: opened %v while %v is open", name, o.Offset, s.off))
				}
				if created {
					made.Add(1)
				}
				s.off = o.Offset
				s.refs++
				s.Unlock()
				if at, err := a.ObjectAt(o.Offset); err != nil {
					fail(err)
				} else {
					a.CloseObject(at)
				}
				s.Lock()
				s.refs--
				s.Unlock()
				a.CloseObject(o)
				if err := a.Delete(name); err == nil {
					made.Add(-1)
				} else if !isAny(err, fs.ErrNotExist, syscall.EBUSY) {
					fail(err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	a := p.join(1)
	requireSound(t, a)
	require.EqualValues(t, made.Load(), a.Stats().Objects)
	for k := range names {
		if err := a.Delete(fmt.Sprint("name ", k)); err != nil {
			require.ErrorIs(t, err, fs.ErrNotExist)
		}
	}
	s := a.Stats()
	require.Zero(t, s.Objects+s.Raw)
}
