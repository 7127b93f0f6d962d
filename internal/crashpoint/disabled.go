//go:build !crashpoint

package crashpoint

// Enabled reports whether this program was built with the tag crashpoint.
const Enabled = false

// Hit marks a crash point. Without the build tag crashpoint it does nothing.
func Hit(name string) {}

// HitCount returns how often this process has passed the point name. Without the build tag
// crashpoint nothing is counted, and it always returns 0.
func HitCount(name string) int { return 0 }

// Arm makes the n'th following Hit of name kill the process with SIGKILL. Without the build tag crashpoint, Hit kills
// no process. So Arm panics: otherwise a test could pass without testing anything.
func Arm(name string, n int) { panicDisabled("Arm") }

// ArmStop is Arm, but stops the process with SIGSTOP.
func ArmStop(name string, n int) { panicDisabled("ArmStop") }

// ArmFunc is Arm, but calls f.
func ArmFunc(name string, n int, f func()) { panicDisabled("ArmFunc") }

// Disarm disarms all points, including those that the environment has armed. Without the build tag
// crashpoint there are none.
func Disarm() {}

// disabled is a variable, because tests that call Arm are compiled without the tag, too. If disabled were a constant,
// linters would report the code after such a call as dead.
var disabled = !Enabled

func panicDisabled(op string) {
	if !disabled {
		return
	}
	panic("crashpoint: " + op + " needs the build tag crashpoint")
}
