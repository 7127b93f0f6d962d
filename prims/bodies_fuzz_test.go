//go:build linux

package prims_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// fuzzedBody is an object of some kind, with all operations on that object.
type fuzzedBody struct {
	offset arena.Offset
	waits  map[string]func(ctx context.Context) // waits that end when ctx ends
	calls  map[string]func()
	close  func() error
}

// fuzzedKinds has for each kind a function that makes an object. The corpus contains indices into
// fuzzedKinds, so new kinds must be added at the end.
var fuzzedKinds = []struct {
	name string
	open func(a *arena.Arena) (fuzzedBody, error)
}{
	{"mutex", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenMutex(a, "", nil)
		return fuzzedLock(x), err
	}},
	{"fairmutex", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenFairMutex(a, "", nil)
		b := fuzzedLock(x)
		b.calls["LockAsync"] = func() { x.LockAsync().Cancel() }
		return b, err
	}},
	{"spinlock", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenSpinLock(a, "", nil)
		return fuzzedLock(x), err
	}},
	{"rwmutex", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenRWMutex(a, "", nil)
		b := fuzzedReaders(x, fuzzedLock(x))
		b.waits["LockUpgradableContext"] = func(ctx context.Context) {
			if x.LockUpgradableContext(ctx) == nil {
				if x.UpgradeContext(ctx) == nil {
					x.DowngradeToUpgradable()
				}
				x.UnlockUpgradable()
			}
		}
		b.calls["TryUpgrade"] = func() { x.TryUpgrade() }
		b.calls["DowngradeToRead"] = x.DowngradeToRead
		return b, err
	}},
	{"rwspinlock", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenRWSpinLock(a, "", nil)
		b := fuzzedReaders(x, fuzzedLock(x))
		b.waits["LockUpgradableContext"] = func(ctx context.Context) {
			if x.LockUpgradableContext(ctx) == nil {
				if x.UpgradeContext(ctx) == nil {
					x.DowngradeToUpgradable()
				}
				x.UnlockUpgradable()
			}
		}
		b.calls["TryUpgrade"] = func() { x.TryUpgrade() }
		return b, err
	}},
	{"multilock", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenMultiLock(a, "", &prims.MultiLockOptions{Buckets: 1})
		return fuzzedBody{x.Offset(), map[string]func(context.Context){
			"LockContext": func(ctx context.Context) {
				if h, err := x.LockContext(ctx, 1); err == nil {
					h.Unlock()
				}
			},
			"LockAll": func(ctx context.Context) {
				if h, err := x.LockAllContext(ctx, 1, 2, 3, 4, 5, 6, 7); err == nil {
					h.Unlock()
				}
			},
			"Recover": func(ctx context.Context) { x.RecoverContext(ctx, 1, func() error { return nil }) },
		}, map[string]func(){
			"TryLock": func() { x.TryLock(9) },
			"State":   func() { _, _ = x.State(1), x.String() },
		}, x.Close}, err
	}},
	{"semaphore", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenSemaphore(a, "", 3, nil)
		return fuzzedBody{x.Offset(), map[string]func(context.Context){
			"Acquire": func(ctx context.Context) {
				if x.AcquireContext(ctx, 2) == nil {
					x.Release(2)
				}
			},
		}, map[string]func(){
			"TryAcquire": func() { x.TryAcquire(1) },
			"Release":    func() { x.Release(1) },
			"State":      func() { _, _ = x.State(), x.String() },
		}, x.Close}, err
	}},
	{"sequencer", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenSequencer(a, "", nil)
		return fuzzedBody{x.Offset(), map[string]func(context.Context){
			"WaitContext": func(ctx context.Context) { x.WaitContext(ctx, x.Value()+1) },
			"far":         func(ctx context.Context) { x.WaitContext(ctx, 1<<60) },
			"WaitAny":     func(ctx context.Context) { prims.WaitAnyContext(ctx, x.At(1<<60), x.At(x.Value()+2)) },
		}, map[string]func(){
			"Increment":     func() { x.Increment() },
			"Advance":       func() { x.Advance(x.Value() + 3) },
			"CancelWaiters": func() { x.CancelWaiters() },
			"WaitAsync":     func() { x.WaitAsync(1 << 60).Cancel() },
			"State":         func() { _, _ = x.State(), x.String() },
		}, x.Close}, err
	}},
	{"event", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenEvent(a, "", &prims.EventOptions{Mode: prims.EventBidirectional})
		return fuzzedEvent(x), err
	}},
	{"auto-reset event", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenEvent(a, "", &prims.EventOptions{Mode: prims.EventAutoReset})
		return fuzzedEvent(x), err
	}},
	{"futex", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenFutex(a, "", nil)
		return fuzzedBody{x.Offset(), map[string]func(context.Context){
			"WaitContext": func(ctx context.Context) { x.WaitContext(ctx, (x.Get()+1)&(1<<62-1)) },
		}, map[string]func(){
			"Post":  func() { x.Post() },
			"Stop":  func() { x.Stop() },
			"State": func() { _, _, _ = x.Get(), x.Stopped(), x.String() },
		}, x.Close}, err
	}},
	{"future", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenFuture(a, "", nil)
		return fuzzedBody{x.Offset(), map[string]func(context.Context){
			"WaitContext": func(ctx context.Context) { x.WaitContext(ctx) },
			"WaitAny":     func(ctx context.Context) { prims.WaitAnyContext(ctx, x, x) },
		}, map[string]func(){
			"Claim": func() { x.Claim() },
			"Set":   func() { x.Set(5) },
			"Reset": func() { x.Reset() },
			"State": func() { _, _ = x.State(), x.String() },
		}, x.Close}, err
	}},
	{"cond", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenCond(a, "", &sync.Mutex{}, nil)
		return fuzzedBody{x.Offset(), map[string]func(context.Context){
			"WaitContext": func(ctx context.Context) {
				x.L.Lock()
				defer x.L.Unlock()
				x.WaitContext(ctx)
			},
		}, map[string]func(){
			"Signal":    func() { x.Signal() },
			"Broadcast": func() { x.Broadcast() },
			"State":     func() { _, _ = x.State(), x.String() },
		}, x.Close}, err
	}},
	{"queue", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenQueue[uint64](a, "", 3, nil)
		return fuzzedBody{x.Offset(), map[string]func(context.Context){
			"PutContext": func(ctx context.Context) { x.PutContext(ctx, 1) },
			"PutBatch":   func(ctx context.Context) { x.PutBatchContext(ctx, []uint64{1, 2, 3, 4}) },
			"GetContext": func(ctx context.Context) { x.GetContext(ctx) },
			"GetBatch":   func(ctx context.Context) { x.GetBatchContext(ctx, make([]uint64, 4)) },
			"Lease": func(ctx context.Context) {
				if l, err := x.LeaseContext(ctx); err == nil {
					l.Nack()
				}
			},
		}, map[string]func(){
			"TryPut":   func() { x.TryPut(1) },
			"TryGet":   func() { x.TryGet() },
			"TryLease": func() { x.TryLease() },
			"Shutdown": func() { x.Shutdown() },
			"State":    func() { _, _, _, _ = x.State(), x.Len(), x.Cap(), x.String() },
		}, x.Close}, err
	}},
	{"waitgroup", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenWaitGroup(a, "", nil)
		return fuzzedGate(x), err
	}},
	{"latch", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenLatch(a, "", 3, nil)
		return fuzzedGate(x), err
	}},
	{"barrier", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenBarrier(a, "", 3, nil)
		return fuzzedGate(x), err
	}},
	{"once", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenOnce(a, "", nil)
		return fuzzedGate(x), err
	}},
	{"waitable", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := priority(a, "", 3)
		return fuzzedBody{x.Offset(), map[string]func(context.Context){
			"Wait": func(ctx context.Context) {
				if e := (wish{2, 1}); x.WaitContext(ctx, e) == nil {
					x.Release(e)
				}
			},
		}, map[string]func(){
			"TryWait": func() { x.TryWait(wish{1, 1}) },
			"Release": func() { x.Release(wish{1, 1}) },
			"Update":  func() { x.Update(func(s *uint32) { *s++ }) },
			"Stop":    func() { x.Stop() },
			"State":   func() { _, _ = x.State(), x.String() },
		}, x.Close}, err
	}},
	{"signalwaker", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenSignalWaker(a, "", &prims.SignalWakerOptions{Signals: 2})
		return fuzzedBody{x.Offset(), map[string]func(context.Context){
			"AcquireContext": func(ctx context.Context) { x.AcquireContext(ctx) },
		}, map[string]func(){
			"Schedule": func() { x.Gate(3).Schedule() },
			"Next": func() {
				if g, ok := x.Next(0); ok {
					g.Finish()
				}
			},
			"Release": func() { x.Release(2) },
			"Reserve": func() {
				if k, ok := x.ReserveTask(); ok {
					x.ReleaseTask(k)
				}
			},
			"Worker": func() { x.RegisterWorker(); x.UnregisterWorker() },
			"State":  func() { _, _ = x.Health(), x.String() },
		}, x.Close}, err
	}},
	{"cohortmutex", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenCohortMutex(a, "", &prims.CohortMutexOptions{Nodes: 2})
		return fuzzedLock(x), err
	}},
	{"synchronized", func(a *arena.Arena) (fuzzedBody, error) {
		x, err := prims.OpenSynchronized(a, "", [40]uint64{}, nil)
		f := func(v *[40]uint64) error {
			v[3]++
			return nil
		}
		return fuzzedBody{x.Offset(), map[string]func(context.Context){
			"UpdateContext": func(ctx context.Context) { x.UpdateContext(ctx, f) },
			"ViewContext":   func(ctx context.Context) { x.ViewContext(ctx, func(*[40]uint64) error { return nil }) },
			"StoreContext":  func(ctx context.Context) { x.StoreContext(ctx, [40]uint64{}) },
		}, map[string]func(){
			"Load":  func() { x.Load() },
			"State": func() { _, _ = x.State(), x.String() },
		}, x.Close}, err
	}},
}

// fuzzedLocker is the interface of the locks of all kinds.
type fuzzedLocker interface {
	LockContext(ctx context.Context) error
	TryLock() bool
	Unlock()
	RecoverContext(ctx context.Context, repair func() error) error
	String() string
	Offset() arena.Offset
	Close() error
}

func fuzzedLock(x fuzzedLocker) fuzzedBody {
	return fuzzedBody{x.Offset(), map[string]func(context.Context){
		"LockContext": func(ctx context.Context) {
			if x.LockContext(ctx) == nil {
				x.Unlock()
			}
		},
		"Recover": func(ctx context.Context) { x.RecoverContext(ctx, func() error { return nil }) },
	}, map[string]func(){
		"TryLock": func() {
			if x.TryLock() {
				x.Unlock()
			}
		},
		"Unlock": x.Unlock,
		"State":  func() { _ = x.String() },
	}, x.Close}
}

func fuzzedReaders(x interface {
	RLockContext(ctx context.Context) error
	TryRLock() bool
	RUnlock()
	Downgrade()
}, b fuzzedBody) fuzzedBody {
	b.waits["RLockContext"] = func(ctx context.Context) {
		if x.RLockContext(ctx) == nil {
			x.RUnlock()
		}
	}
	b.calls["TryRLock"] = func() { x.TryRLock() }
	b.calls["RUnlock"] = x.RUnlock
	b.calls["Downgrade"] = x.Downgrade
	return b
}

func fuzzedEvent(x *prims.Event) fuzzedBody {
	return fuzzedBody{x.Offset(), map[string]func(context.Context){
		"WaitContext":  func(ctx context.Context) { x.WaitContext(ctx) },
		"WaitAny":      func(ctx context.Context) { prims.WaitAnyContext(ctx, x, x) },
		"WaitResetCtx": func(ctx context.Context) { x.WaitResetContext(ctx) },
	}, map[string]func(){
		"Set":       x.Set,
		"Reset":     func() { x.Reset() },
		"TryWait":   func() { x.TryWait() },
		"WaitAsync": func() { x.WaitAsync().Cancel() },
		"State":     func() { _, _ = x.State(), x.String() },
	}, x.Close}
}

func fuzzedGate(x interface {
	gate
	Close() error
}) fuzzedBody {
	waits, calls := hostileDo(x)
	return fuzzedBody{x.Offset(), waits, calls, x.Close}
}

// fuzzedPatches is the greatest number of words that a script overwrites at a time.
const fuzzedPatches = 20

// fuzzedPatch overwrites one word of an object, or of a wait node of the object. The parameter where selects the word,
// and what the word gets: the parameter value itself, or a participant ID, an offset or the like.
func fuzzedPatch(a *arena.Arena, o arenakernel.Object, where uint16, value uint64) {
	at := o.Body + arena.Offset(uint64(where>>4)*8%(o.Size&^7))
	w := arena.At[atomic.Uint64](a, at)
	switch where & 15 {
	case 0, 1, 2:
		w.Store(value)
	case 3:
		w.Store(w.Load()&^0xffff_ffff | value&0xffff_ffff)
	case 4:
		w.Store(w.Load()&0xffff_ffff | value<<32)
	case 5, 6:
		w.Store(w.Load() ^ 1<<(value&63))
	case 7:
		w.Store(uint64(a.Self()) | value&7<<29)
	case 8: // the offset of a word of the object itself
		w.Store(uint64(o.Body) + value%o.Size&^7)
	case 9:
		w.Add(value&15 - 7)
	default:
		(*arenakernel.Arena)(a).EachNode(o.Offset, func(off arena.Offset, n *arenakernel.Node) {
			switch value >> 56 & 7 {
			case 0:
				n.Next().Store(value)
			case 1:
				n.Next().Store(uint64(off)/64<<32 | uint64(off)/64) // a link from the node to itself
			case 2:
				n.Stamp().Store(value)
			case 3:
				n.Extra().Store(value)
			case 4:
				n.Wanted().Store(value)
			case 5:
				n.Word().Store(uint32(value))
			case 6:
				w.Store(uint64(off)/64<<32 | uint64(off)/64)
			case 7:
				w.Store(uint64(off))
			}
		})
	}
}

// fuzzBody acts as a peer that writes anything into an object of any kind and into the nodes of its waiters. No call
// may crash or access memory outside the object. A wait must end with its context. Any other call must end by itself,
// or as soon as fuzzBody has set the bytes of the object to zero.
func fuzzBody(t testing.TB, h *hostile, script []byte) {
	if len(script) < 2 {
		return
	}
	script = script[:min(len(script), 2+10*fuzzedPatches)]
	a, kind, waiters := h.next(t), fuzzedKinds[int(script[0])%len(fuzzedKinds)], int(script[1]%3)
	b, err := kind.open(a)
	require.NoError(t, err)
	o, err := (*arenakernel.Arena)(a).ObjectAt(b.offset)
	require.NoError(t, err)
	defer (*arenakernel.Arena)(a).CloseObject(o)
	body := &gateBody{a, o}
	patch := func() {
		for s := script[2:]; len(s) >= 10; s = s[10:] {
			fuzzedPatch(a, o, binary.LittleEndian.Uint16(s), binary.LittleEndian.Uint64(s[2:]))
		}
	}
	// ended runs f. If f does not end by itself, ended sets the bytes of the object to zero and waits until f ends.
	ended := func(what string, f func()) error {
		done := make(chan error, 1)
		go func() { done <- guardedGate(kind.name+" "+what, body.words, f) }()
		select {
		case err := <-done:
			return err
		case <-after(20 * time.Millisecond):
		}
		body.clean()
		err := <-done
		if err != nil && strings.Contains(err.Error(), "hangs") {
			err = fmt.Errorf("%w\n%s", err, fuzzedStacks())
		}
		return err
	}
	ends := func(what string, f func()) { require.NoError(t, ended(what, f), "%x", script) }
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	over := make(chan error, waiters*len(b.waits))
	for what, f := range b.waits {
		for range waiters {
			go func() { over <- ended(what+" before", func() { f(ctx) }) }()
		}
	}
	if waiters != 0 {
		for n := 0; n < 100 && queued(a, o.Offset) == 0; n++ {
			runtime.Gosched()
		}
	}
	for what, f := range b.waits {
		ctx, cancel := context.WithTimeout(ctx, hostileTimeout)
		patch()
		ends(what, func() { f(ctx) })
		cancel()
	}
	for what, f := range b.calls {
		patch()
		ends(what, f)
	}
	patch()
	_, _ = body.words(), a.Check()
	cancel()
	if cap(over) != 0 {
		<-after(time.Millisecond)
	}
	body.clean()
	for range cap(over) {
		require.NoError(t, <-over, "%x", script)
	}
	require.NoError(t, b.close())
}

// fuzzedStacks returns the stacks of the goroutines that are inside the library.
func fuzzedStacks() string {
	buf := make([]byte, 4<<20)
	var b strings.Builder
	for s := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(s, "shmsync/prims.(") || strings.Contains(s, "internal/park") {
			b.WriteString(s + "\n\n")
		}
	}
	return b.String()
}

// fuzzedSeeds returns scripts with all operations of each kind.
func fuzzedSeeds() (seeds [][]byte) {
	values := []uint64{0, 1, ^uint64(0), 1<<32 + 1, 1 << 63, 0x01000000_00000040, 0x06000000_00000000, 0x20000801}
	for kind := range fuzzedKinds {
		for i, v := range values {
			s := []byte{byte(kind), byte(i)}
			for k := range 4 {
				s = binary.LittleEndian.AppendUint16(s, uint16((i*5+k*7)%64<<4|(i+k*5)%16))
				s = binary.LittleEndian.AppendUint64(s, v)
			}
			seeds = append(seeds, s)
		}
	}
	return seeds
}

// FuzzBodies lets a peer write anything into an object of any kind.
func FuzzBodies(f *testing.F) {
	for _, s := range fuzzedSeeds() {
		f.Add(s)
	}
	var h hostile
	f.Cleanup(h.end)
	f.Fuzz(func(t *testing.T, script []byte) { fuzzBody(t, &h, script) })
}

// TestHostileBodies runs random scripts as FuzzBodies does, for a limited time, in the process of the test. The
// workers of the Go fuzzer are separate processes, in which a failure may go unnoticed.
func TestHostileBodies(t *testing.T) {
	d := proctest.Rounds(proctest.Scale(4*time.Second)/8, proctest.Scale(4*time.Second))
	if s := os.Getenv("SHMSYNC_TEST_BODIES"); s != "" {
		var err error
		d, err = time.ParseDuration(s)
		require.NoError(t, err)
	}
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	var h hostile
	defer h.end()
	n := 0
	for end := time.Now().Add(d); time.Now().Before(end); n++ {
		script := []byte{byte(r.IntN(len(fuzzedKinds))), byte(r.IntN(3))}
		for range 1 + r.IntN(fuzzedPatches) {
			script = binary.LittleEndian.AppendUint16(script, uint16(r.Uint32()))
			value := r.Uint64()
			switch r.IntN(5) {
			case 0:
				value = r.Uint64N(8)
			case 1:
				value = 1 << r.IntN(64)
			case 2:
				value = r.Uint64N(1<<16)<<32 | r.Uint64N(1<<16)
			case 3:
				value = -r.Uint64N(4)
			}
			script = binary.LittleEndian.AppendUint64(script, value)
		}
		fuzzBody(t, &h, script)
	}
	t.Logf("%d scripts", n)
}
