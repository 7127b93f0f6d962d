//go:build linux

package cinterop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// This file is the Go side of testdata/agent_locks.h.

func init() {
	verbs["mutex"] = (*goAgent).mutex
	verbs["futex"] = (*goAgent).futex
	verbs["sleepers"] = (*goAgent).sleepers
	verbs["churn"] = (*goAgent).churn
	verbs["arena"] = (*goAgent).arena
}

var deaths, lastDead, turns atomic.Uint64

func (x *goAgent) arena(o order) (uint64, error) {
	switch o.verb {
	case "arena.watch":
		x.a.OnDeath(func(p arena.Participant) {
			lastDead.Store(uint64(p.PID))
			deaths.Add(1)
		})
		return 0, nil
	case "arena.deaths":
		return deaths.Load(), nil
	case "arena.lastdead":
		return lastDead.Load(), nil
	case "arena.slot":
		return uint64(x.a.Self().Slot()), nil
	}
	return 0, syscall.ENOSYS
}

// sleepersIn counts the announce records of an object, which it reads from the bytes of the arena.
func sleepersIn(a *arena.Arena, object uint64) (n uint64) {
	const slots, stride, records, record = 4096, 2048, 256, 32 // docs/abi.md
	b := a.Segment().Bytes()
	for i := range a.MaxParticipants() {
		slot := b[slots+i*stride:][:stride]
		if phase := binary.LittleEndian.Uint32(slot) & 7; phase == 0 || phase > 3 {
			continue
		}
		for k := range 32 {
			r := slot[records+k*record:][:record]
			if binary.LittleEndian.Uint64(r[8:]) != 0 && binary.LittleEndian.Uint64(r) == object {
				n++
			}
		}
	}
	return n
}

func (x *goAgent) sleepers(o order) (uint64, error) { return sleepersIn(x.a, uint64(o.arg(0))), nil }

// board is the data that a worker group shares.
type board struct {
	Tag                 atomic.Uint64
	Count, In, Repaired uint64
}

// turn locks m once, and changes the data of the board. If the last holder has died, turn repairs the data instead.
func (b *board) turn(m *prims.Mutex, me uint64) error {
	err := m.LockContext(context.Background())
	if errors.Is(err, shmsync.ErrOwnerDead) {
		return m.Recover(b.repair)
	}
	if err != nil {
		return err
	}
	b.Tag.Store(me)
	b.In = b.Count + 1
	for range 20 {
		if b.Tag.Load() != me {
			return syscall.EILSEQ
		}
	}
	b.Count = b.In
	m.Unlock()
	return nil
}

func (b *board) repair() error {
	b.Count = b.In
	b.Repaired++
	return nil
}

func teamBoard(a *arena.Arena, name string) (*board, error) {
	mem, err := a.Block(name+"-board", 32)
	if err != nil {
		return nil, err
	}
	return boardOf(mem), nil
}

func (x *goAgent) mutex(o order) (n uint64, err error) {
	var opts *prims.MutexOptions
	if o.verb == "mutex.open" {
		opts = &prims.MutexOptions{Policy: prims.Policy(o.arg(0))}
	}
	m, err := prims.OpenMutex(x.a, o.name, opts)
	if err != nil {
		return 0, err
	}
	switch o.verb {
	case "mutex.open":
		return uint64(m.Offset()), nil
	case "mutex.lock":
		err := m.LockContext(o.ctx(0))
		var e *shmsync.Error
		if errors.As(err, &e) && e.Who != nil {
			n = uint64(e.Who.PID)
		}
		return n, err
	case "mutex.trylock":
		if !m.TryLock() {
			if err := m.State().Err; err != nil {
				return 0, err
			}
			return 0, syscall.EBUSY
		}
		return 0, nil
	case "mutex.unlock":
		m.Unlock()
		return 0, nil
	case "mutex.recover":
		return n, m.Recover(func() error { n++; return nil })
	case "mutex.badrecover":
		return 0, m.Recover(func() error { return errors.New("bad") })
	case "mutex.hang":
		return 0, m.Recover(x.hangs)
	case "mutex.state":
		return 0, m.State().Err
	case "mutex.team":
		b, err := teamBoard(x.a, o.name)
		if err != nil {
			return 0, err
		}
		me := uint64(os.Getpid())<<16 | turns.Add(1)&0xffff
		for range o.arg(0) {
			if err := b.turn(m, me); err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	case "mutex.timedteam":
		b, err := teamBoard(x.a, o.name)
		if err != nil {
			return 0, err
		}
		for i := range o.arg(0) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%8)*50*time.Microsecond)
			err := m.LockContext(ctx)
			cancel()
			switch {
			case err == nil:
				m.Unlock()
			case errors.Is(err, shmsync.ErrOwnerDead):
				if err := m.Recover(b.repair); err != nil {
					return n, err
				}
			case !errors.Is(err, context.DeadlineExceeded):
				return n, err
			}
			n++
		}
		return n, nil
	}
	return 0, syscall.ENOSYS
}

// hangs is a repair function. It sets the Event "spoiling", waits until the test sets the Event "spoil", and then
// fails.
func (x *goAgent) hangs() error {
	said, err := prims.OpenEvent(x.a, "spoiling", nil)
	if err != nil {
		return err
	}
	told, err := prims.OpenEvent(x.a, "spoil", nil)
	if err != nil {
		return err
	}
	said.Set()
	told.Wait()
	return errors.New("spoilt")
}

func (x *goAgent) futex(o order) (uint64, error) {
	f, err := prims.OpenFutex(x.a, o.name, nil)
	if err != nil {
		return 0, err
	}
	switch o.verb {
	case "futex.open":
		return uint64(f.Offset()), nil
	case "futex.get":
		return f.Get(), nil
	case "futex.post":
		f.Post()
		return 0, nil
	case "futex.stopped":
		return yes(f.Stopped()), nil
	case "futex.stop":
		f.Stop()
		return 0, nil
	case "futex.wait":
		return 0, f.WaitContext(o.ctx(1), uint64(o.arg(0)))
	case "futex.walk":
		for token := o.arg(0); token <= o.arg(1); token++ {
			if err := f.Wait(uint64(token)); err != nil {
				return 0, err
			}
		}
		return 0, nil
	case "futex.posts":
		for range o.arg(0) {
			f.Post()
		}
		return 0, nil
	case "futex.pong":
		back, err := prims.OpenFutex(x.a, o.name+"-back", nil)
		if err != nil {
			return 0, err
		}
		for i := range o.arg(0) {
			if err := f.Wait(uint64(i + 1)); err != nil {
				return 0, err
			}
			back.Post()
		}
		return 0, nil
	}
	return 0, syscall.ENOSYS
}

// churn creates and deletes objects by name.
func (x *goAgent) churn(o order) (uint64, error) {
	for i := range o.arg(0) {
		name := fmt.Sprintf("%s-%d", o.name, i%7)
		m, err := prims.OpenMutex(x.a, name, nil)
		if err != nil {
			return 0, err
		}
		switch err := m.LockContext(context.Background()); {
		case err == nil:
			m.Unlock()
		case errors.Is(err, shmsync.ErrOwnerDead):
			if err := m.Recover(func() error { return nil }); err != nil {
				return 0, err
			}
		default:
			return 0, err
		}
		if err := m.Close(); err != nil {
			return 0, err
		}
		if err := x.a.Delete(name); err != nil && !errors.Is(err, syscall.EBUSY) && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		size := uint64(64 + i%3000)
		if i%5 == 0 {
			size = 100000
		}
		switch off, err := x.a.Alloc(size, 0); {
		case err == nil:
			x.a.Free(off)
		case !errors.Is(err, shmsync.ErrNoSpace):
			return 0, err
		}
	}
	return uint64(o.arg(0)), nil
}
