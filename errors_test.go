package shmsync_test

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

func TestErrorsMatchSentinelAndErrno(t *testing.T) {
	errnos := map[error]syscall.Errno{
		shmsync.ErrOwnerDead:      syscall.Errno(0x82),
		shmsync.ErrNotRecoverable: syscall.Errno(0x83),
		shmsync.ErrCorrupt:        syscall.EPROTO,
		shmsync.ErrIncompatible:   syscall.EINVAL,
		shmsync.ErrCanceled:       syscall.ECANCELED,
		shmsync.ErrClosed:         syscall.EBADF,
		shmsync.ErrNoSpace:        syscall.ENOSPC,
		shmsync.ErrNotSupported:   syscall.ENOTSUP,
	}
	for deathWatcher, errno := range errnos {
		err := fmt.Errorf("around: %w", &shmsync.Error{Op: "mutex.lock", Object: "m", Err: deathWatcher})
		for other, otherErrno := range errnos {
			require.Equal(t, other == deathWatcher, errors.Is(err, other), "%v is %v", deathWatcher, other)
			require.Equal(t, otherErrno == errno, errors.Is(err, otherErrno), "%v is errno %d", deathWatcher, otherErrno)
		}
	}
	err := &shmsync.Error{Op: "arena.open", Err: fs.ErrNotExist}
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, err, syscall.ENOENT)
	require.NotErrorIs(t, err, syscall.Errno(0))
	require.ErrorIs(t, &shmsync.Error{Op: "arena.open", Err: fs.ErrInvalid}, syscall.EINVAL)
}

func TestOutcomesHaveNames(t *testing.T) {
	var names []string
	for o := shmsync.Woken; o <= shmsync.Failed+1; o++ {
		names = append(names, o.String())
	}
	require.Equal(t, []string{"woken", "changed", "interrupted", "timed out", "failed", "invalid"}, names)
}

// TestErrorsEscape checks that an error escapes unprintable characters of labels, names and details. Without escapes,
// these characters could control a terminal, or forge lines of a log.
func TestErrorsEscape(t *testing.T) {
	who := &shmsync.Identity{Slot: 3, Generation: 2, PID: 71, Label: "wör\x1b[2Jk\ner\xff\u009b"}
	require.Equal(t, `wör\x1b[2Jk\ner\xff\u009b (pid 71, slot 3.2)`, who.String())
	err := &shmsync.Error{Op: "mutex.lock", Object: "led\nger", Err: shmsync.ErrOwnerDead, Who: who, Detail: `the "log"` + "\x1b"}
	require.EqualError(t, err,
		`shmsync: mutex.lock "led\nger": owner died: wör\x1b[2Jk\ner\xff\u009b (pid 71, slot 3.2): the "log"\x1b`)
}

func TestErrorSaysWhoDied(t *testing.T) {
	who := &shmsync.Identity{Slot: 3, Generation: 2, PID: 71, Label: "worker", Died: time.Unix(5, 0).UTC()}
	err := &shmsync.Error{Op: "mutex.lock", Object: "ledger", Err: shmsync.ErrOwnerDead, Who: who, Detail: "more"}
	require.EqualError(t, err,
		`shmsync: mutex.lock "ledger": owner died: worker (pid 71, slot 3.2) died at 1970-01-01T00:00:05Z: more`)
	require.Equal(t, "process (pid 0, slot 0.0)", shmsync.Identity{}.String())
}
