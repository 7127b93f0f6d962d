// Package crashpoint gives names to the instructions before which a death leaves shared memory in a
// distinct state, and lets a process of a test die exactly there.
//
// A file that contains such an instruction registers its name once, at package
// level, and marks the place:
//
//	var _ = crashpoint.Register("mutex.unlock.before_wake")
//
//	func (m *Mutex) unlockSlow() {
//		...
//		crashpoint.Hit("mutex.unlock.before_wake")
//		...
//	}
//
// Names are primitive.op.step, in lower case. The comment of the word that is being changed says
// what a death at the point leaves, and what repairs it.
//
// Without the build tag crashpoint, Hit is an empty function that the compiler removes from its
// callers. With the tag, a process dies or stops at a point that is armed. A point can be armed by
// the environment:
//
//	SHMSYNC_CRASHPOINT="name[:n]"       SIGKILL at the n'th Hit of name
//	SHMSYNC_CRASHPOINT_STOP="name[:n]"  SIGSTOP at the n'th Hit of name
//
// or by the process itself, which calls Arm, ArmStop or ArmFunc after its setup. n counts from one,
// which is also its default. Hits before the arming do not count.
//
// A third variable makes passes slow, at random and at all points, so that tests show whether they depend on the
// speed of a step:
//
//	SHMSYNC_CRASHPOINT_DELAY="n:µs"  one Hit in n, chosen at random, takes up to so many microseconds
//
// The names are registered in both builds, so that a test can list them with All, and so that a
// misspelt or duplicate name is always noticed.
package crashpoint
