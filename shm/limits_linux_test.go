package shm

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/proctest"
)

// limited is the result in a process whose limit on the size of files is below the size of a segment.
type limited struct {
	Text  string
	IsBig bool
}

func init() {
	proctest.Register("shm/limited", func(c *proctest.Child) {
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
			c.Fatal(err)
		}
		limit.Cur = 64 << 10
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
			c.Fatal(err)
		}
		_, err := CreateMemfd("limited", 1<<20, nil, nil)
		if err == nil {
			c.Fatalf("a segment of 1 MiB was made under a limit of 64 KiB")
		}
		c.Say(limited{err.Error(), errors.Is(err, unix.EFBIG)})
	})
}

// TestErrorsNameTheLimit: a limit of the process prevents that a segment is made. The error names the
// limit.
func TestErrorsNameTheLimit(t *testing.T) {
	p := proctest.Start(t, "shm/limited")
	var l limited
	p.Recv(t, &l)
	p.WaitExit(t)
	require.Contains(t, l.Text, "1048576 bytes are more than RLIMIT_FSIZE or the file system permits")
	require.True(t, l.IsBig)

	// No process can have so much address space, whatever its limits are.
	_, err := CreateMemfd("limited", 1<<56, nil, nil)
	require.ErrorContains(t, err, "could not map 72057594037927936 bytes of address space (see RLIMIT_AS and vm.max_map_count)")
	require.ErrorIs(t, err, unix.ENOMEM)
}
