//go:build linux

package prims_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// ledger is data that a Mutex with an undo log guards.
type ledger struct {
	From, To int64
	Bytes    [240]byte
}

func newRollback(t *testing.T, a *arena.Arena, log int) (*prims.Mutex, *ledger) {
	t.Helper()
	m, err := prims.OpenMutex(a, "m", &prims.MutexOptions{Policy: prims.PolicyRollback, LogBytes: log})
	require.NoError(t, err)
	l, err := arena.Value[ledger](a, "ledger")
	require.NoError(t, err)
	return m, l
}

// requireIdle requires that m is free and that its log has no transaction.
func requireIdle(t *testing.T, a *arena.Arena, m txLock) {
	t.Helper()
	require.NoError(t, a.Check())
	require.NoError(t, m.Update(func(*prims.Tx) error { return nil }))
	switch m := m.(type) {
	case *prims.Mutex:
		require.False(t, m.State().Held)
	case *prims.RWMutex:
		st := m.State()
		require.False(t, st.Held || st.Closed || st.Upgradable || st.Readers != 0, "%v", m)
	}
}

func TestUpdateCommits(t *testing.T) {
	a := newArena(t, nil)
	m, l := newRollback(t, a, 0)
	require.Equal(t, prims.PolicyRollback, m.Policy())
	require.NoError(t, m.Update(func(tx *prims.Tx) error {
		require.True(t, m.State().Held)
		prims.Set(tx, &l.From, -10)
		prims.Save(tx, &l.To)
		l.To += 10
		prims.SaveSlice(tx, l.Bytes[3:7])
		copy(l.Bytes[3:7], "abcd")
		return nil
	}))
	require.Equal(t, int64(-10), l.From)
	require.Equal(t, int64(10), l.To)
	require.Equal(t, "abcd", string(l.Bytes[3:7]))
	requireIdle(t, a, m)
}

// fillLog calls Save until the log is full.
func fillLog(tx *prims.Tx, l *ledger) {
	for i := 0; ; i = (i + 1) % len(l.Bytes) {
		prims.Set(tx, &l.Bytes[i], 7)
	}
}

// TestUpdateUndoes: unless the function of an Update returns nil, the data is as it was before, in whatever way
// the function ends.
func TestUpdateUndoes(t *testing.T) {
	own := errors.New("own")
	for name, end := range map[string]func(tx *prims.Tx, l *ledger) error{
		"error":  func(*prims.Tx, *ledger) error { return own },
		"panic":  func(*prims.Tx, *ledger) error { panic(own) },
		"goexit": func(*prims.Tx, *ledger) error { runtime.Goexit(); return nil },
		"full": func(tx *prims.Tx, l *ledger) error {
			fillLog(tx, l)
			return nil
		},
		"full, and recovered": func(tx *prims.Tx, l *ledger) (err error) {
			defer func() { recover() }()
			fillLog(tx, l)
			return nil
		},
		"full, and another panic": func(tx *prims.Tx, l *ledger) (err error) {
			defer func() { panic(own) }()
			fillLog(tx, l)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			m, l := newRollback(t, a, 1000)
			before := *l
			var err error
			var caught any
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { caught = recover() }()
				err = m.Update(func(tx *prims.Tx) error {
					prims.Set(tx, &l.From, 5)
					prims.Save(tx, &l.To)
					prims.SaveSlice(tx, l.Bytes[100:])
					*l = ledger{From: 1, To: 2, Bytes: [240]byte(append(bytes.Clone(l.Bytes[:100]), make([]byte, 140)...))}
					return end(tx, l)
				})
			}()
			<-done
			switch {
			case name == "error":
				require.Equal(t, own, err)
			case strings.HasSuffix(name, "panic"):
				require.Equal(t, own, caught)
			case strings.HasPrefix(name, "full"):
				require.ErrorIs(t, err, shmsync.ErrNoSpace)
				require.ErrorContains(t, err, "LogBytes")
			}
			require.Equal(t, before, *l)
			requireIdle(t, a, m)
		})
	}
}

// TestUpdateUndoesOverlappingRanges: random overlapping ranges are saved and overwritten. An abort restores
// every byte.
func TestUpdateUndoesOverlappingRanges(t *testing.T) {
	a := newArena(t, nil)
	m, err := prims.OpenMutex(a, "m", &prims.MutexOptions{Policy: prims.PolicyRollback, LogBytes: 1 << 20})
	require.NoError(t, err)
	block, err := a.Block("data", 4096)
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	fill := func(b []byte) {
		for i := range b {
			b[i] = byte(random.Uint32())
		}
	}
	fill(block)
	for range 300 {
		before := bytes.Clone(block)
		commit := random.IntN(3) == 0
		var want []byte
		err := m.Update(func(tx *prims.Tx) error {
			for range random.IntN(30) {
				from := random.IntN(len(block))
				part := block[from : from+random.IntN(min(300, len(block)-from+1))]
				prims.SaveSlice(tx, part)
				fill(part)
			}
			if want = before; commit {
				want = bytes.Clone(block)
				return nil
			}
			return errors.New("no")
		})
		require.Equal(t, commit, err == nil)
		require.True(t, bytes.Equal(want, block))
	}
	requireIdle(t, a, m)
}

func TestUpdateMistakes(t *testing.T) {
	a := newArena(t, nil)
	m, l := newRollback(t, a, 0)
	plain := newMutex(t, a, nil)
	require.PanicsWithValue(t, `shmsync: Update of mutex `+plain.Offset().String()+
		`, whose policy is report: only a lock that was made with PolicyRollback has an undo log`,
		func() { plain.Update(func(*prims.Tx) error { return nil }) })
	var stale *prims.Tx
	for name, f := range map[string]func(tx *prims.Tx) error{
		"outside of its arena": func(tx *prims.Tx) error { prims.Save(tx, new(int64)); return nil },
	} {
		func() {
			defer func() { require.Contains(t, recover(), name) }()
			m.Update(f)
		}()
		requireIdle(t, a, m)
	}
	require.NoError(t, m.Update(func(tx *prims.Tx) error { stale = tx; return nil }))
	require.PanicsWithValue(t, `shmsync: Save in a transaction of "m" after the Update of the transaction has ended`,
		func() { prims.Save(stale, &l.From) })

	for _, log := range []int{-1, 1<<20 + 1} {
		require.Panics(t, func() {
			prims.OpenMutex(a, "x", &prims.MutexOptions{Policy: prims.PolicyRollback, LogBytes: log})
		})
	}
	require.Panics(t, func() { prims.OpenMutex(a, "x", &prims.MutexOptions{LogBytes: 64}) })
	_, err := prims.OpenMutex(a, "m", &prims.MutexOptions{Policy: prims.PolicyRollback, LogBytes: 64})
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "its undo log has 16384 bytes, asked for 64")
	_, err = prims.OpenMutex(a, "m", &prims.MutexOptions{Policy: prims.PolicyRelease})
	require.ErrorContains(t, err, "its policy is rollback, asked for release")
	again, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	require.Equal(t, prims.PolicyRollback, again.Policy())
	require.NoError(t, again.Update(func(tx *prims.Tx) error { prims.Set(tx, &l.From, 3); return nil }))
	at, err := prims.MutexAt(a, m.Offset())
	require.NoError(t, err)
	require.NoError(t, at.Update(func(tx *prims.Tx) error { prims.Set(tx, &l.From, 4); return nil }))
	requireIdle(t, a, m)
}

// TestUpdateThatUnlocks: the function of an Update unlocks the Mutex, and the Update panics with a message that
// says so. The next Update finds a log that is not idle. From then on the lock is not recoverable until a
// repair.
func TestUpdateThatUnlocks(t *testing.T) {
	a := newArena(t, nil)
	m, l := newRollback(t, a, 0)
	require.PanicsWithValue(t, "shmsync: the function of an Update has unlocked mutex m", func() {
		m.Update(func(tx *prims.Tx) error {
			prims.Set(tx, &l.From, 5)
			m.Unlock()
			return nil
		})
	})
	err := m.Update(func(*prims.Tx) error { return nil })
	require.ErrorIs(t, err, shmsync.ErrCorrupt)
	err = m.LockContext(t.Context())
	require.ErrorIs(t, err, shmsync.ErrNotRecoverable)
	require.NoError(t, m.Recover(func() error { return nil }))
	requireIdle(t, a, m)
}

// TestPolicyRollbackNeedsALog: locks that cannot have an undo log refuse PolicyRollback, with an error that
// says why.
func TestPolicyRollbackNeedsALog(t *testing.T) {
	a := newArena(t, nil)
	p := prims.PolicyRollback
	for want, open := range map[string]func() error{
		"a SpinLock":    func() error { _, err := prims.OpenSpinLock(a, "x", &prims.SpinLockOptions{Policy: p}); return err },
		"an RWSpinLock": func() error { _, err := prims.OpenRWSpinLock(a, "x", &prims.RWSpinLockOptions{Policy: p}); return err },
		"a FairMutex":   func() error { _, err := prims.OpenFairMutex(a, "x", &prims.FairMutexOptions{Policy: p}); return err },
		"a MultiLock":   func() error { _, err := prims.OpenMultiLock(a, "x", &prims.MultiLockOptions{Policy: p}); return err },
		"a CohortMutex": func() error {
			_, err := prims.OpenCohortMutex(a, "x", &prims.CohortMutexOptions{Policy: p})
			return err
		},
	} {
		err := open()
		require.ErrorIs(t, err, shmsync.ErrNotSupported, want)
		require.ErrorContains(t, err, want+" has no undo log")
	}
	require.Zero(t, a.Stats().Objects)
}

// TestCloseWaitsForUpdate: Close of an arena waits for the Updates of its process.
func TestCloseWaitsForUpdate(t *testing.T) {
	a := newArena(t, nil)
	m, l := newRollback(t, a, 0)
	in, goOn, closed, updated := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		updated <- m.UpdateContext(context.Background(), func(tx *prims.Tx) error {
			close(in)
			<-goOn
			prims.Set(tx, &l.From, 5)
			return nil
		})
	}()
	<-in
	go func() {
		a.Close()
		close(closed)
	}()
	for m.LockContext(canceled(t)) != nil && !errors.Is(m.LockContext(canceled(t)), shmsync.ErrClosed) {
		runtime.Gosched() // wait until Close refuses new calls
	}
	select {
	case <-closed:
		t.Fatal("Close did not wait")
	default:
	}
	close(goOn)
	require.NoError(t, <-updated)
	<-closed
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// FuzzUndoLog: a holder has died and left a log with arbitrary contents. The next caller gets the lock, or an
// error that Is ErrNotRecoverable. No call faults, and a repair makes the lock usable.
func FuzzUndoLog(f *testing.F) {
	f.Add(uint64(0), []byte{})
	f.Add(uint64(1)<<61|24|1<<43, bytes.Repeat([]byte{1}, 24))
	f.Add(uint64(3)<<61|16|1<<43, bytes.Repeat([]byte{2}, 16))
	f.Add(^uint64(0), bytes.Repeat([]byte{0xff}, 64))
	for kind := range byte(6) {
		for _, off := range []uint64{0, 4096, 1 << 20, 0xc0000, 1<<64 - 8, 1 << 47} {
			for _, n := range []byte{0, 1, 8, 200} {
				record := binary.LittleEndian.AppendUint64(make([]byte, 8), off)
				record = append(record, n, 0, 0, 0, kind, 0, 0, 0)
				for phase := range uint64(8) {
					f.Add(phase<<61|(0x7ff<<11|9)<<32|uint64(len(record)), record)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, state uint64, records []byte) {
		a := newArena(t, &arena.Options{Size: 2 << 20})
		for _, rw := range []bool{false, true} {
			m, err := openTxLock(a, rw, 512)
			require.NoError(t, err)
			m.LeaveLog(state, records)
			err = look(t.Context(), m, func() {})
			if err != nil {
				require.ErrorIs(t, err, shmsync.ErrNotRecoverable)
				require.NoError(t, m.Recover(func() error { return nil }))
			}
			requireUsable(t, m)
		}
	})
}

func requireUsable(t *testing.T, m txLock) {
	t.Helper()
	require.NoError(t, m.Update(func(*prims.Tx) error { return nil }))
}
