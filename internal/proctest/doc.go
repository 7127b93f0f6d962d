// Package proctest runs helper processes for tests.
//
// A helper is a function that is registered under a name, in the test file that
// uses it, and that runs in a process of its own: the test binary, executed
// again. TestMain decides which of the two a process is.
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
// Parent and child talk only in lines of JSON over the child's standard input and
// output: no side waits by sleeping. A helper's prints to os.Stdout go to its
// standard error, which the parent keeps and shows when the test fails.
//
// The parent owns all timeouts. When one expires it prints what Dump returns,
// has the child print its stacks, and fails the test with both. The limit is
// [DefaultTimeout] times the factor in SHMSYNC_TEST_TIMEOUT_SCALE.
//
// A child does not outlive its test: cleanup kills it. It does not outlive the
// test binary either: it exits when its standard input ends. PR_SET_PDEATHSIG
// is no substitute, since it fires when the thread that forked ends, and a Go
// program cannot tell which of its threads that was.
//
// A child that ends by itself and badly (a panic, Fatal, an exit status other
// than zero) fails the test, unless the test has asked for its exit.
//
// SHMSYNC_EXEC_WRAP, if set, is put in front of the test binary's own path when
// it is executed again: SHMSYNC_EXEC_WRAP=qemu-aarch64-static.
package proctest
