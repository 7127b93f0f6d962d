package diagnose

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// confirmed returns the kinds of the findings that Confirm returns if it sees the given snapshots one after the other.
// It also returns how many later snapshots Confirm took. If Confirm takes more than are given, it gets the last one
// again.
func confirmed(t *testing.T, first *Snapshot, later ...*Snapshot) (kinds []string, looks int) {
	t.Helper()
	defer func(d time.Duration) { ConfirmAfter = d }(ConfirmAfter)
	ConfirmAfter = time.Millisecond
	found, _, err := Confirm(first, func() (*Snapshot, error) {
		looks++
		return later[min(looks, len(later))-1], nil
	})
	require.NoError(t, err)
	for _, f := range found {
		kinds = append(kinds, f.Kind)
	}
	return kinds, looks
}

// unreaped returns a snapshot in which participant b is dead and holds object x. If reaped is true, b no longer holds
// x.
func unreaped(lifeOfOthers string, reaped bool) *Snapshot {
	s := scene(map[string]string{"a": lifeOfOthers, "b": "dead", "c": lifeOfOthers, "d": lifeOfOthers}, "b=x")
	for i := range s.Participants {
		s.Participants[i].State = "live"
	}
	s.Objects = []Object{{Name: "x", Type: "Mutex", Holds: []int{0}}}
	if reaped {
		s.Objects[0].Holds, s.Holds = nil, nil
	}
	return s
}

// A dead holder is no trouble while a living participant may be about to reap it.
func TestDeadHolderIsLeftToLivingParticipants(t *testing.T) {
	dead := func() *Snapshot { return unreaped("alive", false) }
	kinds, looks := confirmed(t, dead(), dead(), dead(), dead(), unreaped("alive", true))
	require.Empty(t, kinds)
	require.Equal(t, 4, looks)

	stopped := func() *Snapshot { return unreaped("stopped", false) }
	kinds, looks = confirmed(t, stopped(), stopped(), unreaped("stopped", true))
	require.Equal(t, []string{DeadHolder}, kinds)
	require.Equal(t, 1, looks)

	defer func(d time.Duration) { ReapWithin = d }(ReapWithin)
	ReapWithin = 20 * time.Millisecond
	kinds, _ = confirmed(t, dead(), dead())
	require.Equal(t, []string{DeadHolder}, kinds)
}

// A cycle of waits for work is a deadlock only if both snapshots show the same phase for each wait, and the same amount
// of work left for each participant. Before the first periodic check, a snapshot has nothing else to tell two such
// waits apart.
func TestDeadlockOfWorkIsOfOnePhase(t *testing.T) {
	cycle := func(phase, left uint64) *Snapshot {
		s := scene(nil, "a=x", "b=y", "a>y", "b>x")
		age := int64(2 * CycleOfWork)
		for i := range s.Waits {
			s.Waits[i].For, s.Waits[i].Want, s.Waits[i].AgeNs = "phase", &phase, &age
			s.Holds[i].Mode, s.Holds[i].Count = "party", left
		}
		return s
	}
	kinds, _ := confirmed(t, cycle(1, 1), cycle(1, 1))
	require.Equal(t, []string{Deadlock}, kinds)
	kinds, _ = confirmed(t, cycle(1, 1), cycle(2, 1))
	require.Empty(t, kinds)
	kinds, _ = confirmed(t, cycle(1, 2), cycle(1, 1))
	require.Empty(t, kinds)
}

// The proof of an edge is about the wait that belongs to the cycle. The same process may have an older wait for another
// key of the same object.
func TestProofIsOfTheWaitInTheCycle(t *testing.T) {
	other, in := uint64(5), uint64(2)
	cycle := func(bits string) *Snapshot {
		s := scene(nil, "a=x", "b=y", "c=m", "a>y", "b>x")
		s.Objects = []Object{{Name: "x"}, {Name: "y", Words: []Word{{Name: "key 5", Bits: bits}, {Name: "key 2", Bits: "7"}}}}
		s.Waits[0].Want, s.Waits[0].ObjectIndex, s.Waits[0].Order = &in, 1, 2
		s.Waits = append(s.Waits, Wait{Owner: s.Waits[0].Owner, For: "lock", Object: "y", ObjectIndex: 1, Want: &other, Order: 1, OnHolds: []int{2}})
		return s
	}
	kinds, _ := confirmed(t, cycle("1"), cycle("2"))
	require.Equal(t, []string{Deadlock}, kinds)
}
