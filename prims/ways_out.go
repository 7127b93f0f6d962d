package prims

import (
	"context"
	"errors"

	"github.com/shmsync/shmsync"
)

// deathAdvice is what a Lock that panics because a holder died says in addition.
const deathAdvice = "its data may be half changed; LockContext returns this error and Recover repairs the data, or Repair in the options does, or RecoverAll in OnFirst after a restart; " +
	"a Mutex with PolicyRollback undoes the change, and a prims.Synchronized needs neither"

// waysOut gives the error that a Lock panics with. If a holder died, it says what there is to do.
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

// waysOutOf is waysOut if there is no context, since the caller panics then.
func waysOutOf(ctx context.Context, err error) error {
	if err == nil || ctx != nil {
		return err
	}
	return waysOut(err)
}
