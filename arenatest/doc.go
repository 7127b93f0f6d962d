// Package arenatest tests programs that share an arena: what they do when a process dies.
//
// A [World] is an arena that lasts as long as a test. Each call of [World.Join] gives the test one
// more participant, which appears to the others as a process of its own.
//
// # A death at a chosen point
//
// [World.Kill] kills a participant, as kill -9 kills a process. The function that was running
// continues, but changes nothing in the arena any more:
//
//	func TestLeaseOfADeadWorkerReturns(t *testing.T) {
//		w := arenatest.New(t, nil)
//		victim, survivor := w.JoinVictim("worker 1"), w.Join("worker 2")
//		jobs := openJobs(t, victim)
//		lease, err := jobs.Lease()
//		require.NoError(t, err)
//		w.Kill(victim)
//		lease.Ack() // too late
//		// Now openJobs(t, survivor).Lease gives the same job.
//	}
//
// # A death at every store
//
// [World.KillAtEveryStore] calls a function and records each of its machine instructions that
// changed the arena. Then it checks, for each of these instructions, whether a survivor can recover
// from a death right after the instruction:
//
//	w := arenatest.New(t, nil)
//	l := openLedger(t, w.Join("teller"))
//	w.KillAtEveryStore(func() { l.transfer(10) }, func(a *arena.Arena) error {
//		l, err := OpenLedger(a) // as the program does after a restart
//		if err != nil {
//			return err
//		}
//		return l.lockAndRepair(checkBalances)
//	})
//
// If the check fails, the test fails with the last line of code before the death:
//
//	arenatest: the balances have the sum 90, want 100
//		This is what a death right after store 3 of 7 leaves. The store changed byte 0 of Value "ledger":
//			bank.(*Ledger).transfer
//				/src/bank/ledger.go:41
//
// # Data races
//
// Without this package the race detector does not see races in an arena, because it watches only
// memory of the Go runtime. Under go test -race a World maps its arena over such memory. So the
// detector reports two goroutines that use the same data without a lock, whether they belong to one
// participant or to two.
//
// # What a test must not leave behind
//
// At the end of the test, the World fails the test if it finds
//
//   - an arena that is damaged, as [arena.Arena.Check] finds it;
//   - a lock, lease, permit or other hold that a living participant still has;
//   - a goroutine of a living participant that still waits for an object.
//
// A block of [arena.Arena.Alloc] may stay. To check that none is left, compare the field Raw of
// [arena.Arena.Stats].
//
// If the test has already failed, the World does not look for these leftovers. It logs the participants, the
// objects and their holders instead.
//
// The files whose names begin with "example" contain tests to copy: for a repair function, for an
// Update, and for a worker's lease.
package arenatest
