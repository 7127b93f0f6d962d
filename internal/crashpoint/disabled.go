//go:build !crashpoint

package crashpoint

// Enabled reports whether this program was built with the tag crashpoint.
const Enabled = false

// Hit marks a crash point. Without the build tag crashpoint it is nothing.
func Hit(name string) {}

// HitCount returns how often this process has passed the point name. Without
// the build tag crashpoint nobody counts and it is always 0.
func HitCount(name string) int { return 0 }

// Arm makes the n'th following Hit of name kill the process with SIGKILL.
// Without the build tag crashpoint it panics: a process that is told to die and
// cannot would make a test pass that has shown nothing.
func Arm(name string, n int) { panicDisabled("Arm") }

// ArmStop is Arm with SIGSTOP.
func ArmStop(name string, n int) { panicDisabled("ArmStop") }

// ArmFunc is Arm with a call of f.
func ArmFunc(name string, n int, f func()) { panicDisabled("ArmFunc") }

// Disarm takes back every arming, including those of the environment. Without
// the build tag crashpoint there are none.
func Disarm() {}

func panicDisabled(op string) {
	panic("crashpoint: " + op + " needs the build tag crashpoint")
}
