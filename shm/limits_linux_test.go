package shm

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/proctest"
)

// limited is the report of a process that cannot make a segment because of one of its limits.
type limited struct {
	Skip string // why the test cannot run here
	Text string
	Is   bool // the error Is the errno for the limit
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
		c.Say(limited{Text: err.Error(), Is: errors.Is(err, unix.EFBIG)})
	})
	proctest.Register("shm/locked", func(c *proctest.Child) {
		// The filter makes each shared mapping fail with EAGAIN. So does the kernel if the process has called
		// mlockall(MCL_FUTURE) and the mapping would exceed the limit.
		const flags = 16 + 3*8 // offset of the lower half of the fourth argument in struct seccomp_data
		err := proctest.Filter([]unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_MMAP, Jf: 2},
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: flags},
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.MAP_SHARED, Jt: 1},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EAGAIN)},
		})
		if err != nil {
			c.Say(limited{Skip: err.Error()})
			return
		}
		_, err = CreateMemfd("locked", 1<<20, nil, nil)
		c.Say(limited{Text: fmt.Sprint(err), Is: errors.Is(err, unix.EAGAIN)})
	})
}

// TestErrorsNameTheLimitOfLockedMemory: a process that locks all its memory has reached its limit of locked memory. The
// error names the limit.
func TestErrorsNameTheLimitOfLockedMemory(t *testing.T) {
	p := proctest.Start(t, "shm/locked")
	var l limited
	p.Recv(t, &l)
	p.WaitExit(t)
	if l.Skip != "" {
		t.Skip("needs seccomp: " + l.Skip)
	}
	require.Contains(t, l.Text, "RLIMIT_MEMLOCK")
	require.True(t, l.Is)
}

// TestErrorsNameTheLimit: a process cannot make a segment because of one of its limits. The error names the limit.
func TestErrorsNameTheLimit(t *testing.T) {
	p := proctest.Start(t, "shm/limited")
	var l limited
	p.Recv(t, &l)
	p.WaitExit(t)
	require.Contains(t, l.Text, "1048576 bytes are more than RLIMIT_FSIZE or the file system permits")
	require.True(t, l.Is)

	// No process can have so much address space, whatever its limits are.
	_, err := CreateMemfd("limited", 1<<56, nil, nil)
	require.ErrorContains(t, err, "could not map 72057594037927936 bytes of address space (see RLIMIT_AS and vm.max_map_count)")
	require.ErrorIs(t, err, unix.ENOMEM)
}
