//go:build linux && amd64

package stepkill_test

import (
	"errors"
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// account is whole if its amounts have the sum 0 and its block, if there is one, contains Turn.
type account struct {
	Amount [4]int64
	Turn   uint64
	Block  arena.Offset
}

var errGivesUp = errors.New("gives up")

// logged is a lock with an undo log.
type logged interface {
	Update(f func(tx *prims.Tx) error) error
	Lock()
	Unlock()
	Offset() arena.Offset
	Close() error
}

// bank is an account, and the lock with an undo log that guards it.
type bank struct {
	a *arena.Arena
	m logged
	x *account
}

// openBank opens a bank whose lock is a Mutex or an RWMutex.
func openBank(a *arena.Arena, lock string) (b *bank, err error) {
	b = &bank{a: a}
	if lock == "rwmutex" {
		b.m, err = prims.OpenRWMutex(a, "m", &prims.RWMutexOptions{Policy: prims.PolicyRollback, LogBytes: 256})
	} else {
		b.m, err = prims.OpenMutex(a, "m", &prims.MutexOptions{Policy: prims.PolicyRollback, LogBytes: 256})
	}
	if err == nil {
		b.x, err = arena.Value[account](a, "account")
	}
	return b, err
}

// sight locks the bank for reading, and returns the function that unlocks it.
func (b *bank) sight() (end func()) {
	if rw, is := b.m.(*prims.RWMutex); is {
		rw.RLock()
		return rw.RUnlock
	}
	b.m.Lock()
	return b.m.Unlock
}

// change changes all parts of the account, and replaces its block by a new one.
func (b *bank) change(tx *prims.Tx) error {
	x := b.x
	prims.Save(tx, &x.Amount)
	for i := range x.Amount {
		x.Amount[i] += int64(2*(i%2)-1) * 10
	}
	prims.Set(tx, &x.Turn, x.Turn+1)
	if x.Block != 0 {
		tx.Free(x.Block)
	}
	prims.Set(tx, &x.Block, tx.Alloc(100, 0))
	*arena.At[uint64](b.a, x.Block) = x.Turn
	tx.Free(tx.Alloc(64, 0))
	return nil
}

// whole returns an error that says which part of the account is torn, or nil.
func (b *bank) whole() error {
	defer b.sight()()
	x, sum := b.x, int64(0)
	for _, n := range x.Amount {
		sum += n
	}
	switch {
	case sum != 0:
		return fmt.Errorf("the account is torn: %v", *x)
	case x.Block != 0 && *arena.At[uint64](b.a, x.Block) != x.Turn:
		return fmt.Errorf("the block of turn %d is of turn %d", x.Turn, *arena.At[uint64](b.a, x.Block))
	}
	// The blocks of the victim are free again, or belong to the account.
	blocks := uint64(0)
	if x.Block != 0 {
		blocks = 1
	}
	if raw := b.a.Stats().Raw; raw != blocks {
		return fmt.Errorf("%d blocks in the heap, %d in the account", raw, blocks)
	}
	return nil
}

func (b *bank) update(f func(tx *prims.Tx) error) error {
	if err := b.m.Update(f); err != nil && err != errGivesUp && !errors.Is(err, shmsync.ErrNoSpace) {
		return err
	}
	return nil
}

func init() {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	for name, op := range map[string]func(b *bank, tx *prims.Tx) error{
		"commit": (*bank).change,
		"commit without blocks": func(b *bank, tx *prims.Tx) error {
			prims.SaveSlice(tx, b.x.Amount[:2])
			b.x.Amount[0]--
			b.x.Amount[1]++
			return nil
		},
		"abort": func(b *bank, tx *prims.Tx) error {
			b.change(tx)
			return errGivesUp
		},
		"full": func(b *bank, tx *prims.Tx) error {
			b.change(tx)
			for {
				b.x.Amount[0]++
				tx.Alloc(64, 0)
			}
		},
	} {
		for _, lock := range []string{"mutex", "rwmutex"} {
			s := scene{name: lock + " rollback/update, " + name, newcomer: lock, open: func(a *arena.Arena) (part, error) {
				b, err := openBank(a, lock)
				if err != nil {
					return part{}, err
				}
				return part{
					op: func() { must(b.update(func(tx *prims.Tx) error { return op(b, tx) })) },
					use: func() error {
						if err := b.whole(); err != nil {
							return err
						}
						return b.update(b.change)
					},
					close: b.m.Close,
				}, nil
			}}
			addScene(s)
			addSceneInC(s, lock, name)
		}
	}
}
