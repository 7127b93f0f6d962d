//go:build linux

package arenakernel

import (
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
)

// robustHeadOf returns the robust list that a thread of this process has registered.
func robustHeadOf(tid int) (head uintptr, err error) {
	var size uintptr
	_, _, errno := unix.Syscall(unix.SYS_GET_ROBUST_LIST, uintptr(tid),
		uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		err = errno
	}
	return head, err
}

func init() {
	proctest.Register("arena/robust", func(c *proctest.Child) {
		// This process has many idle threads with a robust list of their own, as a program with a C library has. The
		// runtime makes one of these threads the thread of the death watcher.
		const threads = 16
		var name string
		c.Params(&name)
		var mu sync.Mutex
		heads := map[int]uintptr{}
		giveList := func() { // registers a robust list for the calling thread
			mu.Lock()
			defer mu.Unlock()
			tid := shmsync.ThreadID()
			if heads[tid] != 0 {
				return
			}
			l, err := shmsync.NewRobustList()
			if err == nil {
				err = l.Register()
			}
			if err == nil {
				heads[tid], err = robustHeadOf(tid)
			}
			if err != nil {
				c.Fatal(err)
			}
		}
		// Each round registers lists for the threads that the runtime has started since the
		// previous round.
		giveLists := func() {
			var ready, done sync.WaitGroup
			ready.Add(threads)
			for range threads {
				done.Go(func() {
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
					giveList()
					ready.Done()
					ready.Wait() // now each goroutine is on a thread of its own
				})
			}
			done.Wait()
		}
		for {
			giveLists()
			a, err := Open(name, &Options{Size: 2 << 20})
			if err != nil {
				c.Fatal(err)
			}
			tid := int(a.u32(a.slot(a.mySlot) + slotTID).Load())
			during, err := robustHeadOf(tid)
			if err != nil {
				c.Fatal(err)
			}
			if err := a.Close(); err != nil {
				c.Fatal(err)
			}
			before, ours := heads[tid]
			if !ours {
				continue // the runtime has just started the thread, which had no list; try again
			}
			after, err := robustHeadOf(tid)
			if err != nil {
				c.Fatal(err)
			}
			c.Say([3]uintptr{before, during, after})
			return
		}
	})
}

// TestCloseGivesTheDeathWatchersThreadItsRobustListBack: after the arena is closed, the thread of
// the death watcher becomes an ordinary thread of the runtime again. It may then run C code that
// locks robust pthread mutexes, so it must get back its previous robust list.
func TestCloseGivesTheDeathWatchersThreadItsRobustListBack(t *testing.T) {
	if err := shmsync.FeatureRobustList.Check(); err != nil {
		proctest.Skip(t, "needs robust lists: "+err.Error(), "arena/robust")
	}
	p := proctest.Start(t, "arena/robust", proctest.Params(newTestArena(t, 4).name))
	var heads [3]uintptr
	p.Recv(t, &heads)
	require.NotEqual(t, heads[0], heads[1], "the list of the arena was not registered")
	require.Equal(t, heads[0], heads[2])
	p.WaitExit(t)
}
