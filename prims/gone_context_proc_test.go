//go:build linux

package prims_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// goneLocks has a function for each kind of lock, which opens the lock "l". If the holder dies, another process gets
// the lock when the holder is gone, because of PolicyRelease or by a Repair.
var goneLocks = map[string]func(a *arena.Arena) (lock func(ctx context.Context) error, err error){
	"mutex": func(a *arena.Arena) (func(context.Context) error, error) {
		m, err := prims.OpenMutex(a, "l", &prims.MutexOptions{Policy: prims.PolicyRelease})
		return m.LockContext, err
	},
	"mutex with repair": func(a *arena.Arena) (func(context.Context) error, error) {
		m, err := prims.OpenMutex(a, "l", &prims.MutexOptions{Repair: repairs})
		return m.LockContext, err
	},
	"rwmutex": func(a *arena.Arena) (func(context.Context) error, error) {
		m, err := prims.OpenRWMutex(a, "l", &prims.RWMutexOptions{Policy: prims.PolicyRelease})
		return m.LockContext, err
	},
	"rwmutex with repair": func(a *arena.Arena) (func(context.Context) error, error) {
		m, err := prims.OpenRWMutex(a, "l", &prims.RWMutexOptions{Repair: repairs})
		return m.LockContext, err
	},
	"spinlock": func(a *arena.Arena) (func(context.Context) error, error) {
		l, err := prims.OpenSpinLock(a, "l", &prims.SpinLockOptions{Policy: prims.PolicyRelease})
		return l.LockContext, err
	},
	"spinlock with repair": func(a *arena.Arena) (func(context.Context) error, error) {
		l, err := prims.OpenSpinLock(a, "l", &prims.SpinLockOptions{Repair: repairs})
		return l.LockContext, err
	},
	"rwspinlock": func(a *arena.Arena) (func(context.Context) error, error) {
		l, err := prims.OpenRWSpinLock(a, "l", &prims.RWSpinLockOptions{Policy: prims.PolicyRelease})
		return l.LockContext, err
	},
	"rwspinlock with repair": func(a *arena.Arena) (func(context.Context) error, error) {
		l, err := prims.OpenRWSpinLock(a, "l", &prims.RWSpinLockOptions{Repair: repairs})
		return l.LockContext, err
	},
	"fair mutex": func(a *arena.Arena) (func(context.Context) error, error) {
		f, err := prims.OpenFairMutex(a, "l", &prims.FairMutexOptions{Policy: prims.PolicyRelease})
		return f.LockContext, err
	},
	"fair mutex with repair": func(a *arena.Arena) (func(context.Context) error, error) {
		f, err := prims.OpenFairMutex(a, "l", &prims.FairMutexOptions{Repair: repairs})
		return f.LockContext, err
	},
	"multilock": func(a *arena.Arena) (func(context.Context) error, error) {
		x, err := prims.OpenMultiLock(a, "l", &prims.MultiLockOptions{Policy: prims.PolicyRelease})
		return func(ctx context.Context) error { _, err := x.LockContext(ctx, 7); return err }, err
	},
}

// goneReaders has a function for each kind of lock with readers, which opens the lock of goneLocks for a reader.
var goneReaders = map[string]func(a *arena.Arena) (lock func(ctx context.Context) error, err error){
	"rwmutex": func(a *arena.Arena) (func(context.Context) error, error) {
		m, err := prims.OpenRWMutex(a, "l", nil)
		return m.RLockContext, err
	},
	"rwmutex with repair": func(a *arena.Arena) (func(context.Context) error, error) {
		m, err := prims.OpenRWMutex(a, "l", &prims.RWMutexOptions{Repair: repairs})
		return m.RLockContext, err
	},
	"rwspinlock": func(a *arena.Arena) (func(context.Context) error, error) {
		l, err := prims.OpenRWSpinLock(a, "l", nil)
		return l.RLockContext, err
	},
	"rwspinlock with repair": func(a *arena.Arena) (func(context.Context) error, error) {
		l, err := prims.OpenRWSpinLock(a, "l", &prims.RWSpinLockOptions{Repair: repairs})
		return l.RLockContext, err
	},
}

// goneNaps are the calls that do not park until a dead holder is gone, but check with pauses.
// TestGoneBeatsTheEndOfItsContext tests these pauses.
var goneNaps = []string{
	"rwmutex/lock", "rwmutex with repair/lock", "rwmutex with repair/read", "spinlock with repair/lock",
	"rwspinlock with repair/lock", "rwspinlock with repair/read", "fair mutex with repair/lock",
}

func repairs() error { return nil }

func init() {
	// The child holds the lock. It starts a process that inherits its byte lock. After the death of the child, the
	// child counts as gone only when that process has ended.
	proctest.Register("gone/holder", func(c *proctest.Child) {
		var params [2]string
		c.Params(&params)
		name, kind := params[0], params[1]
		a, err := arena.Attach(name, &arena.Options{KernelIO: arena.KernelIOAsynchronous})
		if err != nil {
			c.Fatal(err)
		}
		lock, err := goneLocks[kind](a)
		if err == nil {
			err = lock(context.Background())
		}
		if err != nil {
			c.Fatal(err)
		}
		for !a.Fenced() { // so that other processes see the death before the process is gone
			<-after(time.Millisecond)
		}
		heir := exec.Command("sleep", "1000")
		if heir.ExtraFiles, err = filesOf(name); err != nil {
			c.Fatal(err)
		}
		if err := heir.Start(); err != nil {
			c.Fatal(err)
		}
		c.Say([]int{heir.Process.Pid, int((*arenakernel.Arena)(a).Self())})
		c.Await()
	})
}

// TestGoneHolderBeatsTheEndOfTheContext checks that a call gets the lock if the holder is gone before the context of
// the call ends, even if no process has woken the call yet. The holder dies before the call or during it.
func TestGoneHolderBeatsTheEndOfTheContext(t *testing.T) {
	for kind, open := range goneLocks {
		for verb, open := range map[string]func(*arena.Arena) (func(context.Context) error, error){"lock": open, "read": goneReaders[kind]} {
			if open == nil {
				continue
			}
			t.Run(kind+"/"+verb+"/living", func(t *testing.T) { goneBeatsContext(t, kind, false, open) })
			if !slices.Contains(goneNaps, kind+"/"+verb) {
				t.Run(kind+"/"+verb+"/dead", func(t *testing.T) { goneBeatsContext(t, kind, true, open) })
			}
		}
	}
}

func goneBeatsContext(t *testing.T, kind string, dead bool, open func(*arena.Arena) (func(context.Context) error, error)) {
	a := newArena(t, nil)
	k := (*arenakernel.Arena)(a)
	dump := func() string { return words(a) }
	v := proctest.Start(t, "gone/holder", proctest.Params([2]string{nameOf(a), kind}), proctest.Dump(dump))
	var said [2]int
	v.Recv(t, &said)
	heir, id := said[0], arenakernel.ParticipantID(said[1])
	t.Cleanup(func() { syscall.Kill(heir, syscall.SIGKILL) })
	lock, err := open(a)
	require.NoError(t, err)
	die := func() {
		v.Signal(t, os.Kill)
		v.WaitSignal(t, syscall.SIGKILL)
		eventually(t, "the death is seen", dump, func() bool { return k.Dead(id) })
	}
	if dead {
		die()
		require.False(t, k.Gone(id), "its byte lock is not free")
	}
	// So many waits sleep in the kernel that the wait for the lock parks.
	f, err := prims.OpenFutex(a, "f", nil)
	require.NoError(t, err)
	ended := make(chan error)
	for range park.DirectMax {
		go func() { ended <- f.Wait(1) }()
	}
	eventually(t, "all sleep", dump, func() bool { return waitsAt(a, f.Offset()) == park.DirectMax })
	ctx, end := context.WithCancel(t.Context())
	defer end()
	asked := 0
	err = lock(parkedContext{ctx, &asked, func() {
		if !dead {
			die()
		}
		require.NoError(t, syscall.Kill(heir, syscall.SIGKILL))
		eventually(t, "the holder is gone", dump, func() bool { return k.Gone(id) })
		end()
	}})
	f.Post()
	for range park.DirectMax {
		require.NoError(t, <-ended)
	}
	require.Error(t, ctx.Err(), "the wait had parked")
	require.NoError(t, err)
	sound(t, a)
}
