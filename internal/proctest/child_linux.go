package proctest

import (
	"os"

	"golang.org/x/sys/unix"
)

// stdin returns the standard input as a file that is read through the poller of the Go runtime. A blocking read
// would occupy a thread of the helper, and some tests count its threads.
func stdin() *os.File {
	if err := unix.SetNonblock(0, true); err != nil {
		return os.Stdin
	}
	return os.NewFile(0, "proctest input")
}
