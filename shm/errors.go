package shm

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/shmsync/shmsync"
)

// The sentinel errors that this package returns. Test for them with errors.Is. An error that comes from
// a system call also matches its errno. errors.As finds a *shmsync.Error in each error.
var (
	// ErrClosed is returned by operations on a segment after its Close.
	ErrClosed = shmsync.ErrClosed
	// ErrIncompatible is returned for a file that cannot be a segment, because it is not a regular file or because a
	// segment cannot have its size.
	ErrIncompatible = shmsync.ErrIncompatible
	// ErrNoSpace is returned if the filesystem, or the pool of huge pages, has too little room.
	ErrNoSpace = shmsync.ErrNoSpace
	// ErrNotSupported is returned if this system lacks what an operation needs.
	ErrNotSupported = shmsync.ErrNotSupported
)

// opError describes a failed operation on one segment.
type opError struct {
	op   string // the operation: "open", "create"
	name string // segment name or path
	why  string // the cause in words, if the errno alone does not explain it
	kind error  // sentinel error; nil if err says everything
	err  error  // underlying error, usually an errno; nil if the field kind says everything
}

func (e *opError) Error() string {
	s := "shm: " + e.op + " " + printable(e.name)
	if e.why != "" {
		s += ": " + e.why
	}
	switch {
	case e.err != nil:
		s += ": " + e.err.Error()
	case e.kind != nil:
		s += ": " + e.kind.Error()
	}
	return s
}

// printable returns name. If name has characters that are not printable, the result is in quotes, with escapes, because
// a terminal or a log could obey such characters.
func printable(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}

// Unwrap lets errors.Is match the sentinel error, the errno that stands for it, and the underlying
// error. It lets errors.As find a *shmsync.Error.
func (e *opError) Unwrap() []error {
	common := &shmsync.Error{Op: "shm." + e.op, Object: e.name, Err: e.kind, Detail: e.why}
	switch {
	case e.kind == nil:
		common.Err = e.err
		return []error{common}
	case e.err == nil:
		return []error{common}
	}
	return []error{common, e.err}
}
