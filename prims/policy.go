package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
)

// Policy says what happens to an exclusive hold when the process that has it dies. An object stores its policy when
// it is created.
type Policy uint32

const (
	// PolicyReport means that the lock stays unavailable: every waiter and every later call gets ErrOwnerDead, until
	// a process calls Recover. PolicyReport is the default policy of a new object.
	PolicyReport Policy = iota + 1
	// PolicyRelease means that the hold becomes free, as a file lock does. This policy is for data that is
	// consistent after every single step of a change.
	PolicyRelease
	// PolicyRollback means that another process undoes the unfinished Update of the dead holder, and then the hold
	// becomes free. No call gets ErrOwnerDead, and the program needs no repair function. A hold without an Update
	// becomes free as under PolicyRelease. Only a Mutex and an RWMutex may have this policy. A new Mutex or RWMutex
	// with this policy gets an undo log; see [Mutex.Update], [RWMutex.Update] and [Tx].
	PolicyRollback
)

// stored returns the number that stands for the policy p in an object. The default policy is stored as 0, because
// new memory is 0.
func (p Policy) stored() uint32 {
	switch p {
	case PolicyRelease:
		return storedRelease
	case PolicyRollback:
		return storedRollback
	}
	return storedReport
}

// The policies as they are stored in an object.
const (
	storedReport = iota
	storedRelease
	storedRollback
)

// mustBeValid panics if p is not a valid Policy. The parameter names the object in the message.
func (p Policy) mustBeValid(what string) {
	if p > PolicyRollback {
		panic(fmt.Sprintf("shmsync: %s: there is no policy %d", what, uint32(p)))
	}
}

// mustHaveRepair panics if the caller of Recover has passed a nil repair function. It is called before Recover takes
// the lock. The second parameter names the object in the message.
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

// withoutLog returns an error if p is PolicyRollback. It is called for an object of a kind that has no undo log. The
// last parameter names that kind.
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

// differs describes how the policy p of an object differs from the policy that a caller has asked for. It returns ""
// if the two are the same, or if the caller has asked for no particular policy.
func (p Policy) differs(asked Policy) string {
	if asked == 0 || asked == p {
		return ""
	}
	return fmt.Sprintf("its policy is %v, asked for %v", p, asked)
}
