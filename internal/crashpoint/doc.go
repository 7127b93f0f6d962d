// Package crashpoint names the instructions at which a dying process leaves
// shared memory in a state of its own, and lets a test die exactly there.
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
// Names are primitive.op.step, in lower case. The comment of the word that is
// being changed says what a death at the point leaves behind and what repairs it.
//
// Without the build tag crashpoint, Hit is an empty function that the compiler
// removes from its callers. With the tag, a process dies or stops at a point
// that is armed, either by its environment:
//
//	SHMSYNC_CRASHPOINT="name[:n]"       SIGKILL at the n'th Hit of name
//	SHMSYNC_CRASHPOINT_STOP="name[:n]"  SIGSTOP at the n'th Hit of name
//
// or, once it has done its setup, by Arm, ArmStop and ArmFunc. n counts from
// one, which is also its default. Hits before the arming do not count.
//
// The names are registered in both builds, so that a test can enumerate them
// with All and so that a tag cannot hide a misspelt or duplicate name.
package crashpoint
