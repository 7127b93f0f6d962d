//go:build linux

package child

import (
	"os"
	"strings"
	"time"
)

// Tail keeps the end of what a worker prints.
type Tail struct{ B []byte }

// TailBytes is how much a Tail keeps.
const TailBytes = 256 << 10

// Write keeps the last TailBytes of everything written.
func (t *Tail) Write(p []byte) (int, error) {
	t.B = append(t.B, p...)
	if over := len(t.B) - TailBytes; over > 0 {
		t.B = t.B[over:]
	}
	return len(p), nil
}

// Self is the command line that runs this program again.
func Self() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return append(strings.Fields(os.Getenv("SHMSYNC_EXEC_WRAP")), self), nil
}

// DumpTime is how long hung workers have to print their stacks.
const DumpTime = time.Minute

// Without is the environment for workers that must not use some features.
func Without(features string) []string { return []string{"SHMSYNC_DISABLE=" + features} }
