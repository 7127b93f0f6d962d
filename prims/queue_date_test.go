//go:build linux

package prims_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/prims"
)

// leasesOf returns the leases of a queue by their owners.
func leasesOf(a *arena.Arena, q *prims.Queue[uint64]) map[arena.ParticipantID]arena.Hold {
	all := map[arena.ParticipantID]arena.Hold{}
	for _, h := range a.Inspect(arena.Object(q.Object())).Holds {
		if h.Mode == arena.HoldLease {
			all[h.Owner] = h
		}
	}
	return all
}

// datedSince requires that h has a date, and that the date is not earlier than the last argument.
func datedSince(t *testing.T, h arena.Hold, before int64) {
	t.Helper()
	require.NotZero(t, h.Since, "%+v", h)
	require.True(t, h.AtLeast)
	require.GreaterOrEqual(t, h.Since, before)
	require.LessOrEqual(t, h.Since, shmsync.Monotonic()+int64(time.Millisecond)) // a date is rounded up
}

// TestLeaseIsDatedByACheck checks that a periodic check stores a date in each lease that has none. The date stays
// while the lease lasts, and does not keep Ack and Nack from ending the lease.
func TestLeaseIsDatedByACheck(t *testing.T) {
	w := arenatest.New(t, nil)
	tool := w.Join("tool")
	alices, bobs := w.Join("alice"), w.Join("bob")
	alice, err := prims.OpenQueue[uint64](alices, "x", 8, nil)
	require.NoError(t, err)
	bob, err := prims.OpenQueue[uint64](bobs, "x", 8, nil)
	require.NoError(t, err)
	for i := range uint64(8) {
		require.True(t, alice.TryPut(i))
	}
	of := func(a *arena.Arena) arena.Hold { return leasesOf(tool, alice)[a.Self()] }

	before := shmsync.Monotonic()
	first, ok := alice.TryLease()
	require.True(t, ok)
	other, ok := bob.TryLease()
	require.True(t, ok)
	require.Zero(t, of(alices).Since, "no check has stored a date for the lease")
	require.Zero(t, of(bobs).Since, "no check has stored a date for the lease")
	bob.Look()
	a, b := of(alices), of(bobs)
	datedSince(t, a, before)
	datedSince(t, b, before)
	require.EqualValues(t, 1, a.Count, "the date is no part of the count")
	bob.Look()
	require.Equal(t, a, of(alices), "another check has changed the date")
	require.Equal(t, b, of(bobs), "another check has changed the date")

	for range 3 { // the date of a lease must not become the date of the next lease
		first.Nack()
		require.Empty(t, of(alices).Mode)
		before = shmsync.Monotonic()
		attempts := first.Attempts
		first, ok = alice.TryLease()
		require.True(t, ok)
		require.EqualValues(t, 0, first.Item)
		require.Equal(t, attempts+1, first.Attempts)
		require.Zero(t, of(alices).Since, "the date of the lease before")
		bob.Look()
		datedSince(t, of(alices), before)
	}
	stale := first
	first.Ack()
	require.Panics(t, stale.Ack, "a lease ended twice")
	other.Ack()
	require.Empty(t, leasesOf(tool, alice))
	for range 6 {
		first, ok = alice.TryLease()
		require.True(t, ok)
		require.Zero(t, first.Attempts)
		bob.Look()
		first.Ack()
	}
	require.Zero(t, alice.Len())
	for i := range uint64(8) {
		require.True(t, alice.TryPut(i), "an item %d more", i)
	}
	first, ok = alice.TryLease()
	require.True(t, ok)
	require.Zero(t, of(alices).Since, "the date of an earlier item of the slot")
	first.Ack()
}

// TestLeaseIsDatedByAWaiter checks that a process that waits for an item, or for room, stores dates in the leases of
// all processes.
func TestLeaseIsDatedByAWaiter(t *testing.T) {
	w := arenatest.New(t, nil)
	tool := w.Join("tool")
	alices := w.Join("alice")
	alice, err := prims.OpenQueue[uint64](alices, "x", 1, nil)
	require.NoError(t, err)
	bob, err := prims.OpenQueue[uint64](w.Join("bob"), "x", 1, nil)
	require.NoError(t, err)
	require.True(t, alice.TryPut(1))
	before := shmsync.Monotonic()
	l, ok := alice.TryLease()
	require.True(t, ok)
	got := make(chan struct{})
	go func() {
		defer close(got)
		l, err := bob.Lease()
		if err == nil {
			l.Ack()
		}
	}()
	var h arena.Hold
	require.Eventually(t, func() bool {
		h = leasesOf(tool, alice)[alices.Self()]
		return h.Since != 0
	}, time.Minute, time.Millisecond, "the lease %+v has no date", h)
	datedSince(t, h, before)
	l.Nack()
	<-got
	require.Empty(t, leasesOf(tool, alice))
}

// TestLeaseIsNotDatedByThatOfTheDead checks that a lease does not get the date of an earlier lease of the same item,
// after the participant with the earlier lease has left or died. The new lease has no date even before its participant
// has written the lease word.
func TestLeaseIsNotDatedByThatOfTheDead(t *testing.T) {
	w := arenatest.New(t, nil)
	tool := w.Join("tool")
	q, err := prims.OpenQueue[uint64](tool, "x", 8, nil)
	require.NoError(t, err)
	alices := w.Join("alice")
	alice, err := prims.OpenQueue[uint64](alices, "x", 8, nil)
	require.NoError(t, err)
	require.True(t, q.TryPut(1))
	_, ok := alice.TryLease()
	require.True(t, ok)
	q.Look()
	require.NotZero(t, leasesOf(tool, q)[alices.Self()].Since)
	require.NoError(t, alices.Close())
	before := shmsync.Monotonic()
	note, ok := q.TakeWithoutNote()
	require.True(t, ok)
	h := leasesOf(tool, q)[tool.Self()]
	require.Equal(t, arena.HoldLease, h.Mode)
	require.Zero(t, h.Since, "the date of the participant that has left")
	q.Look()
	require.Zero(t, leasesOf(tool, q)[tool.Self()].Since, "a check dates no lease that is not noted")
	l := note()
	require.Equal(t, 1, l.Attempts)
	require.Zero(t, leasesOf(tool, q)[tool.Self()].Since)
	q.Look()
	datedSince(t, leasesOf(tool, q)[tool.Self()], before)
	l.Ack()
}
