// Package arena puts an allocator, a directory of named objects and a table of participants into a
// shared memory segment. The primitives of package prims live in an arena, and learn from it which
// processes are alive.
//
// # Joining
//
// [Open] joins an arena by its name under /dev/shm, and creates it if there is none. [Create] only
// creates an arena, and [Attach] only joins one. Use [Format] and [FromSegment] for an arena in a
// memfd, or in a segment that needs other options. A process leaves with [Arena.Close], or by dying
// in any way.
//
//	a, err := arena.Open("jobs", &arena.Options{Size: 1 << 20, Label: "worker"})
//	if err != nil {
//		return err
//	}
//	defer a.Close()
//
// # Sharing data
//
// Use a Synchronized of package prims for a record that several processes change: if a process is
// killed in the middle of a change, the record stays as it was before.
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
// At a lower level, [Value] returns a variable, and [Arena.Block] returns bytes, which every process
// finds by their name. [Arena.Alloc] returns the [Offset] of a block without a name; other processes
// pass this offset to [At]. Locks and queues for these data are in package prims.
//
// # Deaths
//
// When a participant dies, the others notice it within about a millisecond, without a daemon, and
// take back what it held. [Arena.OnDeath] calls a function for each death, and an error that Is
// [shmsync.ErrOwnerDead] says which participant died while it held a lock.
//
// # Looking
//
// A participant examines its arena with [Arena.Participants], [Arena.Objects], [Arena.Inspect] and
// [Arena.Metrics]. [Inspect] examines an arena without joining it, as the command shmctl does, and
// [Inspector.Diagnose] says why its processes do not make progress.
package arena
