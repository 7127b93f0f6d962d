package shmsync

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// These are the sentinel errors of the module. The comment of each sentinel names its [Errno]. An error of the module
// that Is a sentinel also Is the Errno of this sentinel.
var (
	// ErrOwnerDead says that a process died while it held the object. The caller does not hold the
	// object. Matches EOWNERDEAD.
	ErrOwnerDead = errors.New("owner died")
	// ErrNotRecoverable says that a repair of the state that an object guards has failed. Nobody
	// may use the object until Recover succeeds. Matches ENOTRECOVERABLE.
	ErrNotRecoverable = errors.New("state not recoverable")
	// ErrCorrupt says that shared bytes hold a value that no correct peer
	// writes. Matches EPROTO.
	ErrCorrupt = errors.New("shared memory is corrupt")
	// ErrIncompatible says that a file is no arena, or that its layout differs from the layout that this program
	// uses. It also says that a named object differs in its kind or its options from what the caller wants. Matches
	// EINVAL.
	ErrIncompatible = errors.New("incompatible")
	// ErrCanceled says that the object was stopped or shut down, or that a call cancelled the wait. If a wait ends
	// because its context ends, the error is that of the context instead. Matches ECANCELED.
	ErrCanceled = errors.New("canceled")
	// ErrClosed says that the segment, arena or handle was closed. Matches
	// EBADF.
	ErrClosed = errors.New("closed")
	// ErrNoSpace says that the arena, or the shared memory that it is in, is full. Matches ENOSPC.
	ErrNoSpace = errors.New("no space")
	// ErrNotSupported says that the kernel, a sandbox or the operating system does not offer what
	// an operation needs. Matches ENOTSUP.
	ErrNotSupported = errors.New("not supported")
)

// errnoOf returns the errno that stands for a sentinel error.
func errnoOf(sentinel error) Errno {
	switch sentinel {
	case ErrOwnerDead:
		return eOWNERDEAD
	case ErrNotRecoverable:
		return eNOTRECOVERABLE
	case ErrCorrupt:
		return ePROTO
	case ErrIncompatible:
		return eINVAL
	case ErrCanceled:
		return eCANCELED
	case ErrClosed:
		return eBADF
	case ErrNoSpace:
		return eNOSPC
	case ErrNotSupported:
		return eNOTSUP
	case fs.ErrInvalid:
		return eINVAL
	case fs.ErrNotExist:
		return eNOENT
	}
	return 0
}

// Identity identifies a participant of an arena, alive or dead, by Slot and Generation. The other
// fields are for people to read.
type Identity struct {
	Slot       int       // index of the participant's slot, from 1
	Generation uint32    // distinguishes the participants that used the slot
	PID        int       // in the participant's own pid namespace
	Label      string    // the label in the options of arena.Open
	Died       time.Time // when a peer noticed the death; zero while alive, or if unknown
}

// String renders the identity on one line, as in `worker (pid 71, slot 3.1)`.
func (id Identity) String() string {
	label := id.Label
	if label == "" {
		label = "process"
	}
	label = printable(label)
	return fmt.Sprintf("%s (pid %d, slot %d.%d)", label, id.PID, id.Slot, id.Generation)
}

// Error is the type of the errors that the packages of the module return. It wraps a sentinel error of this package.
// The function errors.Is matches both the sentinel and its errno.
type Error struct {
	Op     string    // the operation, as in "mutex.lock"
	Object string    // the object's name, or its offset if it has no name
	Err    error     // the sentinel, an error that joins two of them, or a system error
	Detail string    // the cause in words; may be empty
	Who    *Identity // the participant that died, for ErrOwnerDead; nil if unknown
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("shmsync: ")
	b.WriteString(e.Op)
	if e.Object != "" {
		b.WriteString(" ")
		b.WriteString(strconv.Quote(e.Object))
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	if e.Who != nil {
		b.WriteString(": ")
		b.WriteString(e.Who.String())
		if !e.Who.Died.IsZero() {
			b.WriteString(" died at ")
			b.WriteString(e.Who.Died.Format(time.RFC3339Nano))
		}
	}
	if e.Detail != "" {
		b.WriteString(": ")
		b.WriteString(printable(e.Detail))
	}
	return b.String()
}

// printable returns s with escapes for all characters that strconv.IsPrint does not accept. Other processes choose
// labels and paths. Without escapes, a label or path could control a terminal, or forge lines of a log.
func printable(s string) string {
	plain := func(r rune) bool { return r != utf8.RuneError && strconv.IsPrint(r) }
	if !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	var b []byte
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if plain(r) {
			b = append(b, s[:n]...)
		} else {
			quoted := strconv.AppendQuote(nil, s[:n])
			b = append(b, quoted[1:len(quoted)-1]...)
		}
		s = s[n:]
	}
	return string(b)
}

// Unwrap returns the sentinel or the system error.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the errno of the sentinel in e.Err. If e.Err joins several errors, the errno of any
// of them counts.
func (e *Error) Is(target error) bool {
	errno, ok := target.(Errno)
	if !ok || errno == 0 {
		return false
	}
	if joined, ok := e.Err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return errnoOf(err) == errno })
	}
	return errnoOf(e.Err) == errno
}
