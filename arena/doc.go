// Package arena puts an allocator, a directory of named objects and a table of participants
// into a shared memory segment. The primitives of package prims live there, and learn from
// it which processes are alive.
//
// # Joining
//
// [Open] joins an arena by its name under /dev/shm and creates it where there is none.
// [Create] and [Attach] do one of the two. An arena at another path, or in a memfd, takes
// [Format] and [FromSegment]. A process leaves with [Arena.Close], or by dying in any way.
//
//	a, err := arena.Open("jobs", &arena.Options{Size: 1 << 20, Label: "worker"})
//	if err != nil {
//		return err
//	}
//	defer a.Close()
//
// # Sharing data
//
// A record that several processes change is best a Synchronized of package prims: a process
// that is killed in the middle of a change leaves the record as it was before.
//
//	stats, err := prims.OpenSynchronized(a, "stats", Stats{}, nil)
//	if err != nil {
//		return err
//	}
//	err = stats.Update(func(s *Stats) error {
//		s.Requests++
//		s.Last = time.Now().UnixNano() // kill -9 before this line: both fields stay as they were
//		return nil
//	})
//
// Below that, [Value] gives a variable that every process finds by its name, and [Arena.Block] gives
// bytes. [Arena.Alloc] gives a block without a name, which other processes find by its
// [Offset] with [At]. Locks and queues for these data are in package prims.
//
// # Deaths
//
// When a participant dies, the others notice it within about a millisecond, without a
// daemon, and take back what it held. [Arena.OnDeath] calls a function for each death, and
// an error that Is [shmsync.ErrOwnerDead] says who died with a lock.
//
// # Looking
//
// A participant looks with [Arena.Participants], [Arena.Objects], [Arena.Inspect] and
// [Arena.Metrics]. [Inspect] looks at an arena without joining it, as the command shmctl
// does, and [Inspector.Diagnose] says why its processes do not go on.
package arena
