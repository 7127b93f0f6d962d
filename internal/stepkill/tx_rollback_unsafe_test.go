//go:build linux && amd64

package stepkill_test

import (
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

// bygone is the ID of a process that no longer exists. Nobody reaps it, so the victim is the first process that finds
// the hold of bygone.
const bygone = 0x3fff<<11 | 5

// Values and offsets of the formats of docs/abi.md.
const (
	blockLogged = 7 // the kind of a logged block, in the bits below the ID
	nameBits    = 1<<29 - 1
	phaseShift  = 61
	toOwner     = 64 // offset of the owner word in the object
	toState     = toOwner + 192
	toGate      = 60 // offset of the gate of an RWMutex in the object
)

// abandon changes the account in an Update. Then it makes the words look as if the participant bygone had died in
// that Update, with its log in the given phase.
func (b *bank) abandon(phase uint64) {
	defer func() { recover() }() // Update panics, because it no longer holds the lock
	b.m.Update(func(tx *prims.Tx) error {
		if err := b.change(tx); err != nil {
			return err
		}
		k := (*arenakernel.Arena)(b.a)
		owner := arenakernel.At[atomic.Uint32](k, b.m.Offset()+toOwner)
		state := arenakernel.At[atomic.Uint64](k, b.m.Offset()+toState)
		self := owner.Load() & nameBits
		// SAFETY: a segment begins at a page, and its blocks are described by aligned words.
		mem := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(k.Segment().Bytes()))), len(k.Segment().Bytes())/4)
		for i := range mem {
			if w := atomic.LoadUint32(&mem[i]); w == self<<3|blockLogged {
				atomic.StoreUint32(&mem[i], bygone<<3|blockLogged)
			}
		}
		state.Store(state.Load()&0xffffffff | bygone<<32 | phase<<phaseShift)
		if _, is := b.m.(*prims.RWMutex); is {
			arenakernel.At[atomic.Uint32](k, b.m.Offset()+toGate).Store(bygone)
			owner.Store(0) // the gate names the dead holder, and the owner word is free
			return nil
		}
		owner.Store(bygone)
		return nil
	})
}

// init adds scenes in which the victim completes or undoes the transaction that a dead process has left. If the victim
// dies meanwhile, the next process begins this work anew.
func init() {
	for name, phase := range map[string]uint64{"rolls back": 1, "undoes blocks": 2, "completes a commit": 3} {
		for _, lock := range []string{"mutex", "rwmutex"} {
			addRollback(lock, name, phase)
		}
	}
}

func addRollback(lock, name string, phase uint64) {
	open := func(a *arena.Arena) (*bank, part, error) {
		b, err := openBank(a, lock)
		if err != nil {
			return nil, part{}, err
		}
		return b, part{
			prep: func() { b.leave(phase) },
			op:   func() { b.sight()() }, // the lock undoes the transaction of the dead holder
			use: func() error {
				if err := b.whole(); err != nil {
					return err
				}
				return b.update(b.change)
			},
			close: b.m.Close,
		}, nil
	}
	s := scene{name: lock + " rollback/" + name, newcomer: lock, owing: true, open: func(a *arena.Arena) (part, error) {
		_, p, err := open(a)
		return p, err
	}}
	addScene(s)
	// A victim in C cannot make the unfinished transaction, because testdata/process.c has no operation for that. So
	// the tester makes it, in the name of bygone.
	s.open = func(a *arena.Arena) (part, error) {
		b, p, err := open(a)
		p.hold = func() { b.leave(phase) }
		return p, err
	}
	addSceneInC(s, lock, "lock")
}

// leave makes an unfinished transaction by a call of abandon. Phase 2 means that a rollback has already undone the
// stores, so in this phase leave also restores the bytes of the account.
func (b *bank) leave(phase uint64) {
	before := *b.x
	b.abandon(phase)
	if phase == 2 {
		*b.x = before
	}
}
