//go:build linux

package prims_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// eventLock is a lock whose holder a test kills.
type eventLock struct {
	lock    func()
	recover func(repair func() error) error
}

// eventLocks opens a lock of every kind and with every policy that the kind has. A key of the map is the name of a
// lock: its kind, then its policy.
func eventLocks(a *arena.Arena) (map[string]eventLock, error) {
	all := map[string]eventLock{}
	var failed error
	add := func(kind string, p prims.Policy, open func(name string) (eventLock, error)) {
		name := fmt.Sprintf("%s-%v", kind, p)
		l, err := open(name)
		failed = errors.Join(failed, err)
		all[name] = l
	}
	type lock interface {
		Lock()
		Recover(func() error) error
	}
	of := func(l lock, err error) (eventLock, error) {
		return eventLock{func() { l.Lock() }, func(f func() error) error { return l.Recover(f) }}, err
	}
	for _, p := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease, prims.PolicyRollback} {
		add("mutex", p, func(name string) (eventLock, error) {
			return of(prims.OpenMutex(a, name, &prims.MutexOptions{Policy: p}))
		})
		add("rw", p, func(name string) (eventLock, error) {
			return of(prims.OpenRWMutex(a, name, &prims.RWMutexOptions{Policy: p}))
		})
		if p == prims.PolicyRollback {
			break // other kinds have no undo log
		}
		add("cohort", p, func(name string) (eventLock, error) {
			return of(prims.OpenCohortMutex(a, name, &prims.CohortMutexOptions{Policy: p, Nodes: 1}))
		})
		add("fair", p, func(name string) (eventLock, error) {
			return of(prims.OpenFairMutex(a, name, &prims.FairMutexOptions{Policy: p}))
		})
		add("spin", p, func(name string) (eventLock, error) {
			return of(prims.OpenSpinLock(a, name, &prims.SpinLockOptions{Policy: p}))
		})
		add("rwspin", p, func(name string) (eventLock, error) {
			return of(prims.OpenRWSpinLock(a, name, &prims.RWSpinLockOptions{Policy: p}))
		})
		add("multi", p, func(name string) (eventLock, error) {
			x, err := prims.OpenMultiLock(a, name, &prims.MultiLockOptions{Policy: p})
			return eventLock{func() { x.Lock(7) }, func(f func() error) error { return x.Recover(7, f) }}, err
		})
	}
	return all, failed
}

func init() {
	proctest.Register("events/idle", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		if _, err := arena.Attach(name, &arena.Options{Label: "victim"}); err != nil {
			c.Fatal(err)
		}
		c.Ready()
		c.Await() // wait to be killed
	})
	proctest.Register("events/hold", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, &arena.Options{Label: "victim"})
		if err != nil {
			c.Fatal(err)
		}
		all, err := eventLocks(a)
		if err != nil {
			c.Fatal(err)
		}
		for _, l := range all {
			l.lock()
		}
		c.Ready()
		c.Await() // wait to be killed
	})
}

// eventLog has an OnEvent that stores the events that it gets.
type eventLog struct {
	t  testing.TB
	ch chan arena.Event
}

func newEventLog(t testing.TB) eventLog { return eventLog{t, make(chan arena.Event, 1024)} }

func (l eventLog) hook(e arena.Event) { l.ch <- e }

// next returns the next n events. The result all is a sorted list of descriptions: the kind of an event, its object,
// and its key if it has one.
func (l eventLog) next(n int) (all []string, events []arena.Event) {
	l.t.Helper()
	for len(all) < n {
		select {
		case e := <-l.ch:
			text := strings.TrimSuffix(fmt.Sprintf("%v: %v", e.Kind, e.Object.Name), ": ")
			if e.Key != nil {
				text += fmt.Sprint(" ", *e.Key)
			}
			all, events = append(all, text), append(events, e)
		case <-time.After(proctest.Scale(proctest.DefaultTimeout)):
			require.Fail(l.t, "an event is missing", "of %d events there came %d, the last ones %q", n, len(all), all[max(0, len(all)-20):])
		}
	}
	slices.Sort(all)
	return all, events
}

// wantEvents returns the events of one kind for the locks whose names have a suffix.
func wantEvents(all map[string]eventLock, kind, suffix string) (want []string) {
	for name := range all {
		if strings.HasSuffix(name, suffix) {
			if strings.HasPrefix(name, "multi") {
				name += " 7"
			}
			want = append(want, kind+": "+name)
		}
	}
	slices.Sort(want)
	return want
}

// TestEvents: the OnEvent of a process is called once for each death, for each lock that the dead
// process has left, for each repair, and for damage.
func TestEvents(t *testing.T) {
	name := arenaName(t)
	log := newEventLog(t)
	a, err := arena.Create(name, &arena.Options{OnEvent: log.hook})
	require.NoError(t, err)
	defer a.Close()
	all, err := eventLocks(a)
	require.NoError(t, err)
	p := proctest.Start(t, "events/hold", proctest.Params(name))
	p.Await(t)
	before := time.Now()
	p.Kill(t)

	want := slices.Concat([]string{"death"}, wantEvents(all, "owner dead", "-report"), wantEvents(all, "taken back", "-release"), wantEvents(all, "taken back", "-rollback"))
	slices.Sort(want)
	got, events := log.next(len(want))
	require.Equal(t, want, got)
	for _, e := range events {
		require.NotNil(t, e.Who, "%v", e)
		require.Equal(t, p.Pid(), e.Who.PID, "%v", e)
		require.Equal(t, "victim", e.Who.Label, "%v", e)
		require.False(t, e.Time.Before(before), "%v", e)
		require.Zero(t, e.Missed)
		require.Contains(t, e.String(), "victim")
	}

	sorry := errors.New("the data is lost")
	for name, l := range all {
		if strings.HasSuffix(name, "-report") {
			require.ErrorIs(t, l.recover(func() error { return sorry }), shmsync.ErrNotRecoverable)
		}
	}
	want = wantEvents(all, "not recoverable", "-report")
	got, events = log.next(len(want))
	require.Equal(t, want, got)
	for _, e := range events {
		require.ErrorContains(t, e.Err, sorry.Error(), "%v", e)
	}
	for name, l := range all {
		if strings.HasSuffix(name, "-report") {
			require.NoError(t, l.recover(func() error { return nil }))
		}
	}
	want = wantEvents(all, "repaired", "-report")
	got, _ = log.next(len(want))
	require.Equal(t, want, got)

	m, err := prims.OpenMutex(a, "mutex-report", nil)
	require.NoError(t, err)
	o, err := a.Object(m.Offset())
	require.NoError(t, err)
	arenakernel.At[atomic.Uint32]((*arenakernel.Arena)(a), o.Body).Store(^uint32(0))
	for range 2 { // damage is reported only once
		require.ErrorIs(t, m.LockContext(t.Context()), shmsync.ErrCorrupt)
	}
	arenakernel.At[atomic.Uint32]((*arenakernel.Arena)(a), o.Body).Store(0)
	require.ErrorIs(t, all["mutex-release"].recover(func() error { panic("not called") }), nil)
	got, events = log.next(1)
	require.Equal(t, []string{"corrupt: mutex-report"}, got)
	require.ErrorIs(t, events[0].Err, shmsync.ErrCorrupt)
	require.Empty(t, log.ch)
}

// TestEventsOfASlowHook: a hook that blocks delays no death, no repair and no other hook. Only a
// limited number of events wait for it; further events are dropped and counted.
func TestEventsOfASlowHook(t *testing.T) {
	name := arenaName(t)
	log := newEventLog(t)
	entered, goOn := make(chan struct{}), make(chan struct{})
	slow := make(chan arena.Event, 1024)
	a, err := arena.Create(name, &arena.Options{OnEvent: func(e arena.Event) {
		select {
		case entered <- struct{}{}:
			<-goOn
		case <-goOn:
		}
		slow <- e
	}})
	require.NoError(t, err)
	defer a.Close()
	b, err := arena.Attach(name, &arena.Options{OnEvent: log.hook})
	require.NoError(t, err)
	defer b.Close()
	p := proctest.Start(t, "events/hold", proctest.Params(name))
	p.Await(t)
	p.Kill(t)
	<-entered // from here on, the call of OnEvent blocks
	all, err := eventLocks(b)
	require.NoError(t, err)
	log.next(1 + len(all))
	const repairs, waiting = 300, 256
	fails := func() error { return errors.New("no") }
	for range repairs {
		require.ErrorIs(t, all["fair-report"].recover(fails), shmsync.ErrNotRecoverable)
		log.next(1) // awaits the event, so that no event for the hook of b is dropped
	}
	close(goOn)
	told := eventLog{t, slow}
	_, events := told.next(1 + waiting)
	for i, e := range events {
		missed := 0
		if i == 1 { // this event comes after the event at which the hook blocked
			missed = 1 + len(all) + repairs - (1 + waiting)
		}
		require.EqualValues(t, missed, e.Missed, "event %d: %v", i, e)
	}
	require.NoError(t, all["fair-report"].recover(func() error { return nil }))
	_, events = told.next(1)
	require.Equal(t, arena.EventRepaired, events[0].Kind)
	require.Zero(t, events[0].Missed)
}

// TestEventsOfAHookThatEndsItsGoroutine: a hook that ends its goroutine still gets the next event.
func TestEventsOfAHookThatEndsItsGoroutine(t *testing.T) {
	name := arenaName(t)
	log := newEventLog(t)
	a, err := arena.Create(name, &arena.Options{OnEvent: func(e arena.Event) {
		log.hook(e)
		runtime.Goexit()
	}})
	require.NoError(t, err)
	defer a.Close()
	p := proctest.Start(t, "events/hold", proctest.Params(name))
	p.Await(t)
	p.Kill(t)
	all, err := eventLocks(a)
	require.NoError(t, err)
	log.next(1 + len(all))
}

// TestEventsOfDamageAreToldOfEachObject checks that each object with damage is reported once, even if it is at the
// offset of an earlier object that was reported, too.
func TestEventsOfDamageAreToldOfEachObject(t *testing.T) {
	log := newEventLog(t)
	a, err := arena.Create(arenaName(t), &arena.Options{OnEvent: log.hook})
	require.NoError(t, err)
	defer a.Close()
	var first arena.Offset
	for i, name := range []string{"one", "two"} {
		m, err := prims.OpenMutex(a, name, nil)
		require.NoError(t, err)
		o, err := a.Object(m.Offset())
		require.NoError(t, err)
		if i == 0 {
			first = o.Offset
		}
		require.Equal(t, first, o.Offset, "the test needs the same place")
		word := arenakernel.At[atomic.Uint32]((*arenakernel.Arena)(a), o.Body)
		word.Store(^uint32(0))
		require.ErrorIs(t, m.LockContext(t.Context()), shmsync.ErrCorrupt)
		word.Store(0)
		require.NoError(t, m.Close())
		require.NoError(t, a.Delete(name))
		got, _ := log.next(1)
		require.Equal(t, []string{"corrupt: " + name}, got)
	}
}

// TestEventsOfAnOpenThatFails: the hook of an Open that fails is never called, although this Open repairs what a dead
// process has left. Openings that are made at the same time have one hook each.
func TestEventsOfAnOpenThatFails(t *testing.T) {
	name := arenaName(t)
	keep, err := arena.Create(name, nil)
	require.NoError(t, err)
	_, err = eventLocks(keep)
	require.NoError(t, err)
	p := proctest.Start(t, "events/hold", proctest.Params(name))
	p.Await(t)
	require.NoError(t, keep.Close())
	p.Kill(t)

	early, sorry := newEventLog(t), errors.New("not now")
	_, err = arena.Attach(name, &arena.Options{OnEvent: early.hook, OnFirst: func(*arena.Arena, arena.Epoch) error { return sorry }})
	require.ErrorIs(t, err, sorry)
	logs := []eventLog{newEventLog(t), newEventLog(t), newEventLog(t)}
	opened := make(chan error)
	for _, log := range logs {
		go func() {
			a, err := arena.Attach(name, &arena.Options{OnEvent: log.hook})
			if err == nil {
				t.Cleanup(func() { a.Close() })
			}
			opened <- err
		}()
	}
	for range logs {
		require.NoError(t, <-opened)
	}
	p = proctest.Start(t, "events/idle", proctest.Params(name))
	p.Await(t)
	p.Kill(t)
	for _, log := range logs {
		for {
			_, events := log.next(1)
			if events[0].Who != nil && events[0].Who.PID == p.Pid() {
				break
			}
		}
	}
	require.Empty(t, early.ch)
}

// TestEventIsOneLine: names and labels may contain any bytes, and the text of an event is still one
// line.
func TestEventIsOneLine(t *testing.T) {
	e := arena.Event{Kind: arena.EventDeath, Who: &shmsync.Identity{PID: 7, Label: "x\n2026 repaired: ledger\x1b[2J"}}
	require.NotContains(t, e.String(), "\n")
	require.NotContains(t, e.String(), "\x1b")
	require.Contains(t, e.String(), "2026 repaired")
}

// TestEventsEndWithTheOpening: a hook may close its arena. After that the hook is not called again.
func TestEventsEndWithTheOpening(t *testing.T) {
	name := arenaName(t)
	log, closed := newEventLog(t), make(chan error, 1)
	keep, err := arena.Create(name, nil)
	require.NoError(t, err)
	defer keep.Close()
	var a *arena.Arena
	opened := make(chan struct{})
	a, err = arena.Attach(name, &arena.Options{OnEvent: func(e arena.Event) {
		<-opened
		log.hook(e)
		if e.Kind == arena.EventDeath {
			closed <- a.Close()
		}
	}})
	require.NoError(t, err)
	close(opened)
	kill := func() {
		p := proctest.Start(t, "events/idle", proctest.Params(name))
		p.Await(t)
		p.Kill(t)
	}
	kill()
	require.NoError(t, <-closed)
	for len(log.ch) > 0 {
		<-log.ch
	}
	other := newEventLog(t)
	b, err := arena.Attach(name, &arena.Options{OnEvent: other.hook})
	require.NoError(t, err)
	defer b.Close()
	kill()
	other.next(1)
	require.Empty(t, log.ch)
}
