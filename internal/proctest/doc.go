// Package proctest runs helper processes for tests.
//
// A helper is a function that a test file registers under a name. It runs in a process of its own,
// which executes the test binary again. TestMain decides whether a process runs the tests or a
// helper.
//
//	func TestMain(m *testing.M) { proctest.Main(m) }
//
//	func init() {
//		proctest.Register("mutex/hold", func(c *proctest.Child) {
//			m := openMutex(c.File(0))
//			m.Lock()
//			c.Ready()
//			c.Await() // for ever, unless the parent sends something
//		})
//	}
//
//	func TestOwnerDeath(t *testing.T) {
//		p := proctest.Start(t, "mutex/hold", proctest.Files(memfd))
//		p.Await(t)
//		p.Kill(t)
//		...
//	}
//
// Parent and child communicate only by lines of JSON over the child's standard input and output.
// Neither side waits by sleeping. What a helper prints to os.Stdout goes to its standard error,
// which the parent keeps and shows if the test fails.
//
// All timeouts are in the parent. When a timeout expires, the parent fails the test, and logs
// what Dump returns and the stacks of the child. The limit is [DefaultTimeout] times the
// factor in SHMSYNC_TEST_TIMEOUT_SCALE.
//
// A child does not outlive its test, because cleanup kills it. It does not outlive the test binary
// either, because it exits when its standard input ends. PR_SET_PDEATHSIG is no substitute: it
// takes effect when the thread that forked ends, and a Go program does not know which of its
// threads that was.
//
// If a child ends by itself with a failure (a panic, Fatal, an exit status other than zero), the
// test fails, unless the test has asked for the Exit of the child.
//
// SHMSYNC_EXEC_WRAP, if set, is put before the path of the test binary when it is executed again,
// for example SHMSYNC_EXEC_WRAP=qemu-aarch64-static.
package proctest
