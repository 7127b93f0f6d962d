package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
)

// Policy says what happens to an exclusive hold whose process dies. It is stored in the object
// when it is created.
type Policy uint32

const (
	// PolicyReport: the hold is not given to anyone. Every waiter and every later call gets
	// ErrOwnerDead, until a process calls Recover. It is the default policy of a new object.
	PolicyReport Policy = iota + 1
	// PolicyRelease: the hold becomes free, as a file lock does. It is for data that is
	// consistent at every step.
	PolicyRelease
	// PolicyRollback: the next process undoes the unfinished Update of the dead holder, and the
	// hold becomes free. Nobody gets ErrOwnerDead, and the program needs no repair function. A
	// hold without an Update becomes free as under PolicyRelease. Only a Mutex and an RWMutex may
	// have this policy. A new one with it gets an undo log; see [Mutex.Update], [RWMutex.Update]
	// and [Tx].
	PolicyRollback
)

// stored is the policy in the form that the bytes of an object have: all-zero bytes mean the
// default.
func (p Policy) stored() uint32 {
	switch p {
	case PolicyRelease:
		return storedRelease
	case PolicyRollback:
		return storedRollback
	}
	return storedReport
}

// The policies in the form that the bytes of an object have.
const (
	storedReport = iota
	storedRelease
	storedRollback
)

// mustBeValid panics if p is not a valid Policy. what names the object.
func (p Policy) mustBeValid(what string) {
	if p > PolicyRollback {
		panic(fmt.Sprintf("shmsync: %s: there is no policy %d", what, uint32(p)))
	}
}

// mustHaveRepair panics if a caller of Recover passed no repair. It is called before anything is taken. what
// names the object.
func mustHaveRepair(given bool, what string) {
	if !given {
		panic("shmsync: Recover of " + what + " without a repair")
	}
}

func policyOf(stored uint32) Policy {
	switch stored & policyMask {
	case storedRelease:
		return PolicyRelease
	case storedRollback:
		return PolicyRollback
	}
	return PolicyReport
}

// withoutLog refuses PolicyRollback for an object of a kind that has no undo log. what names that
// kind.
func (p Policy) withoutLog(op, name, what string) error {
	if p != PolicyRollback {
		return nil
	}
	return &shmsync.Error{Op: op, Object: name, Err: shmsync.ErrNotSupported,
		Detail: what + " has no undo log, which PolicyRollback needs; a Mutex has one, and an RWMutex"}
}

const policyMask = 0xff

// String returns the name of the policy.
func (p Policy) String() string {
	switch p {
	case 0:
		return "default"
	case PolicyReport:
		return "report"
	case PolicyRelease:
		return "release"
	case PolicyRollback:
		return "rollback"
	}
	return "invalid"
}

// differs says how the policy of an object differs from the one that was asked for, if one was.
func (p Policy) differs(asked Policy) string {
	if asked == 0 || asked == p {
		return ""
	}
	return fmt.Sprintf("its policy is %v, asked for %v", p, asked)
}
