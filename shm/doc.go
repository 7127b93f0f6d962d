// Package shm provides segments: files of shared memory, mapped into the calling process for reading
// and writing.
//
// A segment is named or unnamed. A named segment is a file in /dev/shm or at a path. An unnamed segment
// is a sealed memfd, whose descriptor is inherited by the processes that use it, or sent to them. The
// size of a segment never changes. All processes that have a segment mapped see the same bytes.
//
// # Creation
//
// A creator builds a segment in private and publishes it when it is complete. While no other process
// can find the segment, the creator sets the size and runs its init function. Then it gives the segment
// its name in one step, and never replaces an existing file. If a creator is killed at any instruction,
// it leaves either the complete segment, or nothing that disturbs other processes.
//
// # Space
//
// A new segment is a sparse file: the kernel allocates a page at the first write to it. If the file
// system is full by then, the write causes SIGBUS, which a Go program does not survive. So a program
// calls [Segment.Reserve] on a range before it writes there for the first time. If there is not enough
// space, Reserve returns the error [ErrNoSpace].
//
// # Trust
//
// A segment file is created with mode 0600, and opened without following a symbolic link. Its owner
// must be the effective user of this process, root, or one of [Options].TrustUIDs. A process that may
// write to a segment may write anything to it. The owner of a segment file may truncate it. Then
// processes that have the segment mapped receive SIGBUS. A memfd made by [CreateMemfd] is sealed, so it
// cannot be truncated.
//
// # Environment
//
// SHMSYNC_DISABLE is a comma-separated list of kernel features to treat as missing. This package
// honours "otmpfile" (unnamed temporary files) and "mbind" (NUMA placement).
//
// The package works on Linux. On other systems it compiles, and every function
// that creates or finds a segment returns [ErrNotSupported].
package shm
