package shmsync_test

import (
	"fmt"
	"os"
)

// reopen opens the file of f again, with an open file description of its own.
func reopen(f *os.File) (*os.File, error) {
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDWR, 0)
}
