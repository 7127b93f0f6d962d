package prims

import "fmt"

// Policy says what becomes of an exclusive hold whose process dies. It is
// stored in the object when it is created.
type Policy uint32

const (
	// PolicyReport: the hold is not given to anyone. Every waiter and every later call gets
	// ErrOwnerDead, until a process calls Recover. It is the policy of objects that are
	// created without one.
	PolicyReport Policy = iota + 1
	// PolicyRelease: the hold becomes free, as a file lock does: for data that is
	// consistent at every step.
	PolicyRelease
)

// stored is the policy as the bytes of an object have it: all-zero bytes are
// an object with the default.
func (p Policy) stored() uint32 {
	if p == PolicyRelease {
		return 1
	}
	return 0
}

// mustBeValid panics if p is not a valid Policy. what names the object.
func (p Policy) mustBeValid(what string) {
	if p > PolicyRelease {
		panic(fmt.Sprintf("shmsync: %s: there is no policy %d", what, uint32(p)))
	}
}

// mustHaveRepair panics if a caller of Recover gave no repair, before anything is taken. what names the object.
func mustHaveRepair(given bool, what string) {
	if !given {
		panic("shmsync: Recover of " + what + " without a repair")
	}
}

func policyOf(stored uint32) Policy {
	if stored&policyMask == 1 {
		return PolicyRelease
	}
	return PolicyReport
}

const policyMask = 0xff

// String names the policy.
func (p Policy) String() string {
	switch p {
	case 0:
		return "default"
	case PolicyReport:
		return "report"
	case PolicyRelease:
		return "release"
	}
	return "invalid"
}

// differs says how the policy of an object is not what was asked for, if anything was.
func (p Policy) differs(asked Policy) string {
	if asked == 0 || asked == p {
		return ""
	}
	return fmt.Sprintf("its policy is %v, asked for %v", p, asked)
}
