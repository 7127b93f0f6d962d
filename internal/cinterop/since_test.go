//go:build linux

package cinterop

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// dateOfWait returns the time at which the wait of the agent began, as a tool in another process sees it. It returns 0
// if the agent is awake between two sleeps, or has not dated its wait yet.
func dateOfWait(t *testing.T, a *arena.Arena, off uint64, x *agent) int64 {
	t.Helper()
	o, err := (*arenakernel.Arena)(a).ObjectAt(arena.Offset(off))
	require.NoError(t, err)
	defer (*arenakernel.Arena)(a).CloseObject(o)
	for _, w := range a.Inspect(arena.Object(o)).Waits {
		if who := a.Who(w.Owner); who != nil && who.PID == x.cmd.Process.Pid {
			return w.Since
		}
	}
	return 0
}

// A wait keeps its date when its thread wakes because of a death, or for the periodic check of its process every 100
// ms.
func TestWaitKeepsItsDate(t *testing.T) {
	type wait struct {
		open []any // the argument with which the agents open the object
		take string
		wait string
		args []any
		on   string // the object that shows the wait; x if empty
		ends bool   // the death of a participant ends the wait of the only waiter
	}
	waits := map[string]wait{
		"mutex.open":  {take: "mutex.lock", wait: "mutex.lock"},
		"futex.open":  {wait: "futex.wait", args: []any{1}},
		"event.open":  {wait: "event.wait"},
		"rw.open":     {take: "rw.lock", wait: "rw.rlock"},
		"spin.open":   {take: "spin.lock", wait: "spin.lock"},
		"sig.open":    {open: []any{2, 1}, wait: "sig.acquire", ends: true},
		"future.open": {wait: "all.any", on: "x-f"},
		"rwspin.open": {take: "rwspin.rlock", wait: "rwspin.lock"},
	}
	for open, w := range waits {
		for _, lang := range []string{"c", "go"} {
			t.Run(open+"/"+lang, func(t *testing.T) {
				t.Parallel()
				name := newArena(t)
				holder, waiter, victim := newAgent(t, "c", name, "holder"), newAgent(t, lang, name, "waiter"), newAgent(t, "c", name, "victim")
				var off uint64
				object := cmp.Or(w.on, "x")
				for _, x := range []*agent{holder, waiter, victim} {
					off = x.do(t, open, object, w.open...)
				}
				if w.take != "" {
					holder.do(t, w.take, "x")
				}
				if w.on != "" { // all.any also waits for these objects
					holder.do(t, "seq.open", "x-s")
					holder.do(t, "event.open", "x-e", 1)
					holder.do(t, "event.open", "x-r", 2)
					holder.do(t, "event.set", "x-r")
				}
				before := shmsync.Monotonic()
				wait := waiter.start(t, w.wait, "x", w.args...)
				a, err := arena.Attach(name, &arena.Options{Label: "tool"})
				require.NoError(t, err)
				defer a.Close()
				var date int64
				eventually(t, "the wait has a date", name, func() bool {
					date = dateOfWait(t, a, off, waiter)
					return date != 0
				})
				require.GreaterOrEqual(t, date, before)
				keepsDate := func() bool {
					again := dateOfWait(t, a, off, waiter)
					require.True(t, again == 0 || again == date, "the wait seems to have begun %v later", time.Duration(again-date))
					return again != 0
				}
				afterSomeChecks := func() {
					for end := shmsync.Monotonic() + int64(350*time.Millisecond); shmsync.Monotonic() < end; {
						keepsDate()
					}
					eventually(t, "the wait has its date again", name, keepsDate)
				}
				if w.ends {
					afterSomeChecks()
					victim.kill(t)
					wait.must(t)
					return
				}
				victim.kill(t)
				eventually(t, "the victim is reaped", name, func() bool {
					keepsDate()
					return len(slices.Collect(a.Participants())) == 3
				})
				afterSomeChecks()
			})
		}
	}
}

// In an arena without counters, a waiter of either language records the date of the hold for which it waits.
func TestWaiterDatesHold(t *testing.T) {
	type lock struct {
		object, take, drop, wait, end string
		open, args                    []any
		mode                          string
		put                           bool // an item has to be put first, because the verb take takes one
		checks                        bool // a periodic check dates the hold, even a moment after the wait has ended
	}
	for _, l := range []lock{
		{object: "mutex", take: "lock", drop: "unlock"},
		{object: "rw", take: "lock", drop: "unlock"},
		{object: "rw", take: "rlock", drop: "runlock", wait: "lock", end: "unlock", mode: arena.HoldShared},
		{checks: true, object: "rw", take: "lock", drop: "unlock", wait: "rlock", end: "runlock"},
		{object: "fair", take: "lock", drop: "unlock"},
		{object: "multi", open: []any{0, 1}, take: "lock", drop: "unlock", args: []any{7}},
		{checks: true, object: "spin", take: "lock", drop: "unlock"},
		{checks: true, object: "rwspin", take: "lock", drop: "unlock"},
		{checks: true, object: "rwspin", take: "lock", drop: "unlock", wait: "rlock", end: "runlock"},
		{checks: true, object: "rwspin", take: "rlock", drop: "runlock", wait: "lock", end: "unlock", mode: arena.HoldShared},
		{object: "queue", open: []any{1}, take: "lease", drop: "nack", end: "ack", mode: arena.HoldLease, put: true, checks: true},
		{object: "sem", open: []any{1}, take: "acquire", drop: "release", args: []any{1}, mode: arena.HoldPermits},
	} {
		l.wait, l.end, l.mode = cmp.Or(l.wait, l.take), cmp.Or(l.end, l.drop), cmp.Or(l.mode, arena.HoldExclusive)
		for _, langs := range [][2]string{{"c", "c"}, {"go", "c"}, {"c", "go"}} {
			t.Run(l.object+"."+l.take+"/"+langs[0]+", "+langs[1], func(t *testing.T) {
				t.Parallel()
				name := newArena(t)
				holder, waiter := newAgent(t, langs[0], name, "holder"), newAgent(t, langs[1], name, "waiter")
				off := holder.do(t, l.object+".open", "x", l.open...)
				waiter.do(t, l.object+".open", "x", l.open...)
				a, err := arena.Attach(name, &arena.Options{Label: "tool"})
				require.NoError(t, err)
				defer a.Close()
				o, err := a.Object(arena.Offset(off))
				require.NoError(t, err)
				hold := func() (h arena.Hold) {
					for _, h = range a.Inspect(o).Holds {
						if h.Mode == l.mode {
							return h
						}
					}
					return arena.Hold{}
				}
				for round := range 3 { // the date of one hold must not be taken for the date of the next hold
					if l.put {
						holder.do(t, l.object+".tryput", "x", 1)
					}
					before := shmsync.Monotonic()
					holder.do(t, l.object+"."+l.take, "x", l.args...)
					if round == 0 || !l.checks {
						require.Zero(t, hold().Since)
					}
					end := waiter.start(t, l.object+"."+l.wait, "x", l.args...)
					eventually(t, "the hold has a date", name, func() bool { return hold().Since != 0 })
					h := hold()
					require.True(t, h.AtLeast)
					require.GreaterOrEqual(t, h.Since, before)
					require.LessOrEqual(t, h.Since, shmsync.Monotonic()+int64(time.Millisecond)) // the date of a first wait is rounded up
					holder.do(t, l.object+"."+l.drop, "x", l.args...)
					end.must(t)
					waiter.do(t, l.object+"."+l.end, "x", l.args...)
				}
			})
		}
	}
}
