package arenakernel

import (
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync"
)

// core is the state that the parts of an Arena share: the bytes, their validated geometry, and the
// ID of this participant.
type core struct {
	memory
	geo   geometry
	label string // the segment's name or path, for messages

	// self is the ID of this process in the arena. It is set before any other code can use the
	// arena, and does not change afterwards.
	self ParticipantID
	// current reports whether an ID belongs to a participant that has not left and has not been
	// marked dead.
	current func(ParticipantID) bool
	// gone reports, for a participant that is not current, whether no thread and no system call of
	// it can write to the arena any more.
	gone func(ParticipantID) bool
	// reserve allocates memory for n bytes at off. If there is too little memory, the error Is
	// shmsync.ErrNoSpace.
	reserve func(off, n uint64) error
	// discard gives the memory of n bytes at off back to the file system, if possible, and sets them to 0.
	// The bytes lie in chunks that this participant has claimed, or are block words of these chunks.
	discard func(off, n uint64)

	// work counts the block words and directory entries that this process has read in walks and
	// searches. Tests check that this number stays small.
	work atomic.Uint64

	acting  [actWords]atomic.Bool // the act words that are in use
	heap    heapLocal
	handles openLocal
	nodes   nodeLocal
	records sync.Mutex // held while this process searches for its slot record of an object, or makes one
}

// fail returns the error of an operation on this arena.
func (c *core) fail(op string, err error, detail string) error {
	return &shmsync.Error{Op: op, Object: c.label, Err: err, Detail: detail}
}
