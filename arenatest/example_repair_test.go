//go:build linux

package arenatest_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/prims"
)

// This is the program under test: two accounts under a Mutex with PolicyReport. A transfer first
// records what it is about to do, so that a repair can finish it.

type accounts struct {
	Balance [2]int64
	To      [2]int64      // the balances after the transfer that is in progress
	Moving  atomic.Uint32 // 1 while a repair has to use To
}

type bank struct {
	m *prims.Mutex
	v *accounts
}

func openBank(a *arena.Arena) (*bank, error) {
	m, err := prims.OpenMutex(a, "bank", nil)
	if err != nil {
		return nil, err
	}
	v, err := arena.Value[accounts](a, "accounts")
	return &bank{m, v}, err
}

// lock locks the bank, and repairs it first if its holder died.
func (b *bank) lock(ctx context.Context) error {
	for {
		err := b.m.LockContext(ctx)
		if !errors.Is(err, shmsync.ErrOwnerDead) {
			return err
		}
		if err := b.m.RecoverContext(ctx, b.repair); err != nil {
			return err
		}
	}
}

// repair finishes the transfer of a dead holder.
func (b *bank) repair() error {
	if b.v.Moving.Load() == 1 {
		b.v.Balance = b.v.To
		b.v.Moving.Store(0)
	}
	return nil
}

func (b *bank) transfer(ctx context.Context, amount int64) error {
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.m.Unlock()
	b.v.To = [2]int64{b.v.Balance[0] - amount, b.v.Balance[1] + amount}
	b.v.Moving.Store(1) // an atomic store: the compiler moves no store across it
	b.v.Balance = b.v.To
	b.v.Moving.Store(0)
	return nil
}

// This is the test: if a process dies at any point of a transfer, the next process finds either the old balances or the
// new ones.
func TestBankSurvivesADeathAnywhereInATransfer(t *testing.T) {
	ctx := context.Background()
	w := arenatest.New(t, nil)
	b, err := openBank(w.Join("teller"))
	require.NoError(t, err)
	b.v.Balance[0] = 100
	w.KillAtEveryStore(func() {
		if err := b.transfer(ctx, 10); err != nil {
			t.Error(err)
		}
	}, func(a *arena.Arena) error {
		b, err := openBank(a)
		if err != nil {
			return err
		}
		if err := b.lock(ctx); err != nil {
			return err
		}
		defer b.m.Unlock()
		if v := b.v.Balance; v != [2]int64{100, 0} && v != [2]int64{90, 10} {
			return fmt.Errorf("the balances are %v", v)
		}
		return nil
	})
}
