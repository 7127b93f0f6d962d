// Package shm provides segments: files of shared memory, mapped into the
// calling process for reading and writing.
//
// A segment is named (a file in /dev/shm, or at a path), or unnamed (a sealed
// memfd whose descriptor is inherited or sent to the processes that use it). Its
// size is fixed for life. All processes that have
// the same segment mapped see the same bytes.
//
// # Creation
//
// A creator builds a segment in private and publishes it whole. While no other process can find the
// segment, the creator sets the size and runs its init function. Then it gives the segment its name
// in one step, and never replaces an existing file. A creator that is killed at any instruction
// leaves either the finished segment, or nothing that disturbs other processes.
//
// # Space
//
// A new segment is a sparse file: the kernel allocates a page at the first write
// to it. If the file system is full by then, the write causes SIGBUS, which a Go
// program does not survive. So a program calls [Segment.Reserve] on a range before
// it writes there for the first time. Running out of space is then an error,
// [ErrNoSpace].
//
// # Trust
//
// A segment file is created with mode 0600, and opened without following a symbolic link. Its owner
// must be the effective user of this process, root, or one of [Options].TrustUIDs. A process that
// may write to a segment may write anything to it. The owner of a segment file may truncate it, and
// then the processes that have it mapped receive SIGBUS. A memfd made by [CreateMemfd] is sealed
// against that.
//
// # Environment
//
// SHMSYNC_DISABLE is a comma-separated list of kernel features to treat as missing. This package
// honours "otmpfile" (unnamed temporary files) and "mbind" (NUMA placement).
//
// The package works on Linux. On other systems it compiles, and every function
// that creates or finds a segment returns [ErrNotSupported].
package shm
