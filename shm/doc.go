// Package shm provides segments: files of shared memory, mapped into the
// calling process for reading and writing.
//
// A segment is named (a file in /dev/shm, or at a path of one's own), or
// unnamed (a sealed memfd whose descriptor is inherited or sent to the
// processes that use it). Its size is fixed for life. All processes that have
// the same segment mapped see the same bytes.
//
// # Creation
//
// A segment is built in private and published whole: it is sized, and the
// creator's init function run on it, while no other process can find it. Then
// it is given its name in one step, which never replaces a file that is
// already there. A creator that is killed at any instruction leaves either
// the finished segment or nothing that anyone can trip over.
//
// # Space
//
// A new segment is a sparse file: its pages come into being when they are
// first written. Where the filesystem is full by then, the write is answered
// with SIGBUS, which a Go program does not survive. A program therefore calls
// [Segment.Reserve] on a range before it writes there for the first time;
// running out of space is then an error, [ErrNoSpace].
//
// # Trust
//
// A segment file is created with mode 0600, opened without following a
// symbolic link, and refused unless its owner is the effective user of this
// process, root, or one of [Options].TrustUIDs. Whoever may write to a
// segment may write anything to it, and whoever owns a segment file may
// truncate it, upon which those who have it mapped receive SIGBUS; a memfd
// made by [CreateMemfd] is sealed against that.
//
// # Environment
//
// SHMSYNC_DISABLE is a comma-separated list of kernel features that are to be
// treated as missing. This package honours two: "otmpfile" (unnamed temporary
// files) and "mbind" (NUMA placement).
//
// The package works on Linux. Elsewhere it compiles, and every function that
// would make or find a segment returns [ErrNotSupported].
package shm
