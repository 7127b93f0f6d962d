//go:build linux

package child

import (
	"os"
	"strings"
	"time"
)

// Tail is a writer that keeps only the end of what a worker process prints.
type Tail struct{ B []byte }

// TailBytes is how many bytes a Tail keeps.
const TailBytes = 256 << 10

// Write appends p, and discards all but the last TailBytes bytes.
func (t *Tail) Write(p []byte) (int, error) {
	t.B = append(t.B, p...)
	if over := len(t.B) - TailBytes; over > 0 {
		t.B = t.B[over:]
	}
	return len(p), nil
}

// Self returns the command line that runs this program again.
func Self() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return append(strings.Fields(os.Getenv("SHMSYNC_EXEC_WRAP")), self), nil
}

// DumpTime is the time that workers have to print their stacks after they hung.
const DumpTime = time.Minute

// Without returns the environment for a worker that must not use the given features of the library.
func Without(features string) []string { return []string{"SHMSYNC_DISABLE=" + features} }
