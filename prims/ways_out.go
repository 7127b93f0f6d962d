package prims

import (
	"context"
	"errors"

	"github.com/shmsync/shmsync"
)

// deathAdvice is the text that a Lock adds to its panic if a holder died. It says what the caller can do.
const deathAdvice = "its data may be half changed; LockContext returns this error and Recover repairs the data, or Repair in the options does, or RecoverAll in OnFirst after a restart; " +
	"a Mutex with PolicyRollback undoes the change, and a prims.Synchronized needs neither"

// waysOut returns the error with which a Lock panics. If a holder died, it adds deathAdvice to the error.
func waysOut(err error) error {
	var e *shmsync.Error
	if !errors.Is(err, shmsync.ErrOwnerDead) || !errors.As(err, &e) {
		return err
	}
	told := *e
	if told.Detail != "" {
		told.Detail += "; "
	}
	told.Detail += deathAdvice
	return &told
}

// waysOutOf does what waysOut does if ctx is nil, because then the caller panics with the error. Otherwise it
// returns err unchanged.
func waysOutOf(ctx context.Context, err error) error {
	if err == nil || ctx != nil {
		return err
	}
	return waysOut(err)
}
