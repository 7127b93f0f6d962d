// Package prims has the synchronization primitives. A handle is the Go value, such as a *Mutex, through which
// this process uses a primitive in an arena that any number of processes share.
//
// For each primitive X, the function OpenX finds an object by its name or creates it. Two processes that open
// the same name in the same arena share the object. AttachX only finds the object, and returns an error that Is
// [fs.ErrNotExist] if there is none. An empty name creates a fresh anonymous object. Another process can open
// such an object by XAt, with the result of the method Offset. Any goroutine of the process may use a handle. A
// process, not a goroutine, holds a lock: as with a sync.Mutex, another goroutine may release it.
//
// # A first program
//
// A [Synchronized] is a value that several processes change. If one of them is killed in the
// middle of a change, the others find the value as it was before, and go on.
//
//	a, err := arena.Open("jobs", nil)
//	if err != nil {
//		return err
//	}
//	stats, err := prims.OpenSynchronized(a, "stats", Stats{}, nil)
//	if err != nil {
//		return err
//	}
//	err = stats.Update(func(s *Stats) error {
//		s.Requests++
//		s.Last = time.Now().UnixNano() // kill -9 before this line: both fields stay as they were
//		return nil
//	})
//	fmt.Println(stats.Load().Requests) // does not wait for an Update
//
// # When a process dies
//
// The other processes of the arena notice when a process dies, in whatever way and at whatever instruction. If the
// dead process held a lock, the policy of the lock decides what happens to it: see [Policy]. A [Synchronized] needs
// no policy. If the dead process waited for a lock or another object, the next waiter is served in its place.
//
// # Errors
//
// A call panics if its caller makes a mistake. It returns an error if another process has died or misbehaves. Methods
// that return no error, such as Lock, panic with that error. Package shmsync defines the errors.
//
// # Contexts
//
// A context ends waits. A call that need not wait succeeds even though its context has ended, except where its comment
// says otherwise. A nil context never ends.
//
// # Which primitive
//
//   - a record that changes wholly or not at all: [Synchronized]
//   - one holder at a time: [Mutex]; in order of arrival: [FairMutex]; for a few
//     instructions: [SpinLock]; for many CPUs on several NUMA nodes: [CohortMutex]; a lock
//     for each key: [MultiLock]
//   - readers together, also with upgrades: [RWMutex]; with spinning: [RWSpinLock]
//   - a number of holders at a time: [Semaphore]
//   - to wait for a condition that a lock guards: [Cond]; for a flag: [Event]; for a number:
//     [Sequencer]; for anything without a lock: [Futex]; for a result: [Future]; for several
//     of these: [WaitAny]
//   - to wait for each other: [WaitGroup], [Latch], [Barrier]; to do a thing once: [Once]
//   - to pass work on: [Queue]; to schedule many queues over workers: [SignalWaker]
//   - none of these: [Waitable]
package prims
