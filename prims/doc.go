// Package prims has the synchronization primitives: handles of this process on
// words in an arena that any number of processes share.
//
// Each primitive X is made or found by OpenX with the name of an object; two
// processes that open the same name of the same arena share the object. AttachX
// only finds it: where there is none, the error Is [fs.ErrNotExist]. An empty name
// makes a fresh anonymous object, which another process reaches by its Offset and
// XAt. Operations on a handle may be called by any goroutine of
// the process: what is held is held by the process, as sync.Mutex is not held
// by a goroutine either.
//
// # When a process dies
//
// A process that dies, in whatever way and at whatever instruction, is noticed
// by those that share the arena. What it held is dealt with by the policy of
// the object: see [Policy]. What it waited for goes to the next.
//
// # Errors
//
// The caller's mistakes panic. What a peer did wrong, or that it died, is an
// error; the forms that return no error, such as Lock, panic with it. The
// errors are those of package shmsync.
//
// # Which one
//
//   - one at a time: [Mutex]; in order of arrival: [FairMutex]; for a few
//     instructions: [SpinLock]; wanted by many on several NUMA nodes:
//     [CohortMutex]; a lock for each key: [MultiLock]
//   - readers together: [RWMutex]; with upgrades: [RWSpinLock]
//   - so many at a time: [Semaphore]
//   - wait for a condition that a lock guards: [Cond]; a flag: [Event]; a number:
//     [Sequencer]; anything without a lock: [Futex]; a result: [Future]; several of
//     these: [WaitAny]
//   - wait for each other: [WaitGroup], [Latch], [Barrier]; do a thing once: [Once]
//   - pass work on: [Queue]; of many queues, to workers: [SignalWaker]
//   - none of these: [Waitable]
package prims
