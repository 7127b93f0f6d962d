//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// txShared is data that is whole whenever no Update runs: the sum of the accounts is 0, all bytes of Fill are
// equal, and each block of Blocks contains its own place in the list.
type txShared struct {
	Account [8]int64
	Fill    [200]byte
	Count   uint64
	Blocks  [16]arena.Offset
}

type txBlock struct {
	Index, Turn uint64
	More        [6]uint64 // equal to Turn
}

// txLock is a lock with an undo log: a Mutex or an RWMutex.
type txLock interface {
	Update(f func(tx *prims.Tx) error) error
	LockContext(ctx context.Context) error
	Lock()
	Unlock()
	Rollbacks() uint64
	Recover(repair func() error) error
	Offset() arena.Offset
	LeaveLog(state uint64, records []byte)
	Close() error
}

// openTxLock opens the RWMutex "rw", or the Mutex "m".
func openTxLock(a *arena.Arena, rw bool, log int) (txLock, error) {
	if rw {
		return prims.OpenRWMutex(a, "rw", &prims.RWMutexOptions{Policy: prims.PolicyRollback, LogBytes: log})
	}
	return prims.OpenMutex(a, "m", &prims.MutexOptions{Policy: prims.PolicyRollback, LogBytes: log})
}

// txHeldBy reports whether the process with that pid holds m.
func txHeldBy(m txLock, pid int) bool {
	switch m := m.(type) {
	case *prims.Mutex:
		st := m.State()
		return st.Held && st.Owner.PID == pid
	case *prims.RWMutex:
		st := m.State()
		return st.Held && st.Owner.PID == pid
	}
	return false
}

// look calls f while it holds m. In half of the calls it locks m only for reading, if m is an RWMutex.
func look(ctx context.Context, m txLock, f func()) error {
	if rw, is := m.(*prims.RWMutex); is && rand.IntN(2) == 0 {
		if err := rw.RLockContext(ctx); err != nil {
			return err
		}
		defer rw.RUnlock()
	} else {
		if err := m.LockContext(ctx); err != nil {
			return err
		}
		defer m.Unlock()
	}
	f()
	return nil
}

// txBank is what one process has open: a txShared with its lock, and the bytes that victims read from a file.
type txBank struct {
	a     *arena.Arena
	m     txLock
	s     *txShared
	big   []byte
	blind bool // no change is saved, so a death leaves torn data
}

const txBig = 64 << 10

func openTxBank(a *arena.Arena, rw bool) (b *txBank, err error) {
	b = &txBank{a: a}
	if b.m, err = openTxLock(a, rw, 128<<10); err != nil {
		return nil, err
	}
	if b.s, err = arena.Value[txShared](a, "shared"); err != nil {
		return nil, err
	}
	b.big, err = a.Block("big", txBig)
	return b, err
}

// save calls Save, unless the bank is blind.
func save[T any](b *txBank, tx *prims.Tx, p *T) {
	if !b.blind {
		prims.Save(tx, p)
	}
}

var errTxAbort = errors.New("the caller gives up")

// change runs a random Update, which changes accounts, bytes or blocks. The Update may abort at the end.
func (b *txBank) change() error {
	err := b.m.Update(func(tx *prims.Tx) error {
		s, x := b.s, rand.Int64N(1000)
		from, to := &s.Account[rand.IntN(len(s.Account))], &s.Account[rand.IntN(len(s.Account))]
		save(b, tx, from)
		*from -= x
		save(b, tx, to)
		*to += x
		if rand.IntN(2) == 0 {
			save(b, tx, &s.Fill)
			for i, turn := 0, byte(x); i < len(s.Fill); i++ {
				s.Fill[i] = turn
			}
		}
		for range rand.IntN(3) {
			if !b.blind {
				b.changeBlock(tx, uint64(x))
			}
		}
		if rand.IntN(8) == 0 {
			return errTxAbort
		}
		return nil
	})
	if err == errTxAbort {
		return nil
	}
	return err
}

func (b *txBank) changeBlock(tx *prims.Tx, turn uint64) {
	i := rand.Uint64N(uint64(len(b.s.Blocks)))
	place := &b.s.Blocks[i]
	if *place == 0 || rand.IntN(4) == 0 {
		off := tx.Alloc(64+rand.Uint64N(3000), 0)
		if rand.IntN(8) == 0 { // a temporary block
			tx.Free(off)
			return
		}
		if *place != 0 {
			tx.Free(*place)
		} else {
			prims.Set(tx, &b.s.Count, b.s.Count+1)
		}
		prims.Set(tx, place, off)
		block := arena.At[txBlock](b.a, off)
		block.Index = i
		block.set(turn)
		return
	}
	if rand.IntN(2) == 0 {
		block := arena.At[txBlock](b.a, *place)
		prims.Save(tx, block)
		block.set(turn)
		return
	}
	tx.Free(*place)
	prims.Set(tx, place, 0)
	prims.Set(tx, &b.s.Count, b.s.Count-1)
}

func (x *txBlock) set(turn uint64) {
	x.Turn = turn
	for i := range x.More {
		x.More[i] = turn
	}
}

// read runs an Update in which the kernel copies a file into the data. If the process is killed, the kernel may
// copy for a while longer.
func (b *txBank) read(f *os.File) error {
	return b.m.Update(func(tx *prims.Tx) error {
		prims.SaveSlice(tx, b.big)
		n, err := f.ReadAt(b.big, 0)
		if err != nil && err != io.EOF || n != len(b.big) {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
		return errTxAbort // abort, so that big is 0 whenever the lock is free
	})
}

// whole returns nil if the data is whole. Otherwise the error says which part is torn.
//
// Preconditions: the caller holds the lock.
func (b *txBank) whole() error {
	s := b.s
	sum, count := int64(0), uint64(0)
	for _, x := range s.Account {
		sum += x
	}
	if sum != 0 {
		return fmt.Errorf("the accounts have the sum %d", sum)
	}
	for i, x := range s.Fill {
		if x != s.Fill[0] {
			return fmt.Errorf("byte %d is %d, the first is %d", i, x, s.Fill[0])
		}
	}
	for i, off := range s.Blocks {
		if off == 0 {
			continue
		}
		count++
		block := arena.At[txBlock](b.a, off)
		if block.Index != uint64(i) {
			return fmt.Errorf("block %d at %v is block %d", i, off, block.Index)
		}
		for _, x := range block.More {
			if x != block.Turn {
				return fmt.Errorf("block %d at %v is torn: %v", i, off, *block)
			}
		}
	}
	if count != s.Count {
		return fmt.Errorf("%d blocks, listed are %d", s.Count, count)
	}
	for i, x := range b.big {
		if x != 0 {
			return fmt.Errorf("byte %d of the file is in the data", i)
		}
	}
	return nil
}

type txParams struct {
	Arena, File  string
	Reads, Blind bool
	RW           bool // the lock is an RWMutex
	Point        string
}

func init() {
	proctest.Register("tx/victim", func(c *proctest.Child) {
		var p txParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, &arena.Options{Label: "victim"})
		if err != nil {
			c.Fatal(err)
		}
		b, err := openTxBank(a, p.RW)
		if err != nil {
			c.Fatal(err)
		}
		b.blind = p.Blind
		var f *os.File
		if p.Reads {
			if f, err = os.Open(p.File); err != nil {
				c.Fatal(err)
			}
		}
		c.Ready()
		for {
			if p.Reads {
				err = b.read(f)
			} else {
				err = b.change()
			}
			if err != nil && err != errTxAbort {
				c.Fatal(err)
			}
		}
	})
}

// txKills kills victims at random moments. It returns how many transactions were undone after a death, and how
// many times the data was torn.
func txKills(t *testing.T, kills int, p txParams) (undone uint64, torn int) {
	a := newArena(t, &arena.Options{Size: 8 << 20})
	b, err := openTxBank(a, p.RW)
	require.NoError(t, err)
	p.Arena, p.File = nameOf(a), filepath.Join(t.TempDir(), "file")
	content := make([]byte, txBig)
	for i := range content {
		content[i] = 1
	}
	require.NoError(t, os.WriteFile(p.File, content, 0o600))
	start := func(i int) *proctest.Proc {
		q := p
		q.Reads = i%10 == 9 && !p.Blind
		v := proctest.Start(t, "tx/victim", proctest.Params(q), proctest.Dump(func() string { return words(a) }))
		v.Await(t)
		return v
	}
	const atOnce = 3
	for i := 0; i < kills; i += atOnce {
		var victims [atOnce]*proctest.Proc
		for k := range victims {
			victims[k] = start(i + k)
		}
		for k, v := range victims {
			for range rand.IntN(12) {
				if !p.Blind {
					require.NoError(t, b.change())
				}
			}
			if k == atOnce-1 {
				// The victim is killed as soon as the test sees it hold the lock, so it mostly dies with the
				// lock. Otherwise, on a single busy CPU, the victim might not run at all before its death.
				eventually(t, "the victim has the lock", func() string { return words(a) }, func() bool {
					return txHeldBy(b.m, v.Pid())
				})
			}
			v.Signal(t, os.Kill)
			if k%2 == 0 {
				require.NoError(t, look(t.Context(), b.m, func() {
					if err := b.whole(); err != nil {
						torn++
						if !p.Blind {
							t.Errorf("after kill %d: %v", i+k, err)
						}
						*b.s = txShared{}
					}
				}))
			}
			v.WaitSignal(t, syscall.SIGKILL)
		}
	}
	alone(t, a, 1)
	b.m.Lock()
	if err := b.whole(); err != nil && !p.Blind {
		t.Error(err)
	}
	b.m.Unlock()
	if !p.Blind {
		require.NoError(t, a.Check())
		require.Equal(t, b.s.Count, a.Stats().Raw, "blocks listed, and blocks in the heap")
		require.Zero(t, a.Stats().Claimed)
		requireIdle(t, a, b.m)
	}
	return b.m.Rollbacks(), torn
}

func TestUpdateSurvivesKills(t *testing.T) { txSurvives(t, txParams{}) }

// TestRWMutexUpdateSurvivesKills is TestUpdateSurvivesKills with an RWMutex, which this process also locks for reading.
func TestRWMutexUpdateSurvivesKills(t *testing.T) { txSurvives(t, txParams{RW: true}) }

func txSurvives(t *testing.T, p txParams) {
	kills := proctest.Rounds(20, 200)
	begun := time.Now()
	for undone := uint64(0); undone == 0; {
		undone, _ = txKills(t, kills, p)
		t.Logf("%d kills, %d transactions undone, 0 torn", kills, undone)
		require.False(t, undone == 0 && time.Since(begun) > 3*timeout(), "no victim has died in a transaction")
	}
}

// TestDataWithoutSaveIsTorn checks that the kills of TestUpdateSurvivesKills leave torn data if the victims do not call
// Save.
func TestDataWithoutSaveIsTorn(t *testing.T) {
	torn := 0
	for range 80 {
		if _, torn = txKills(t, 15, txParams{Blind: true}); torn > 0 {
			return
		}
	}
	t.Fatal("no death has torn the data: the test shows nothing")
}
