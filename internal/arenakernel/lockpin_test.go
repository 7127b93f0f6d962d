//go:build linux

package arenakernel

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/proctest"
)

func init() {
	proctest.Register("lockpin/overlay", func(c *proctest.Child) {
		var dir string
		c.Params(&dir)
		must := func(err error) {
			if err != nil {
				c.Fatal(err)
			}
		}
		must(unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		must(unix.Mount("none", dir, "tmpfs", 0, ""))
		for _, name := range []string{"lower", "upper", "work", "merged"} {
			must(os.Mkdir(dir+"/"+name, 0o700))
		}
		err := unix.Mount("none", dir+"/merged", "overlay", 0,
			"lowerdir="+dir+"/lower,upperdir="+dir+"/upper,workdir="+dir+"/work")
		if err != nil {
			c.Say([]string{err.Error()})
			return
		}
		must(os.WriteFile(dir+"/merged/jobs", nil, 0o600))
		c.Say([]string{"", losesItsPin(dir + "/merged/jobs"), losesItsPin(dir + "/upper/jobs"), losesItsPin(dir + "/none")})
	})
}

// TestOverlayLosesThePin: a process that was declared dead learns whether the file system may be the reason.
func TestOverlayLosesThePin(t *testing.T) {
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	proctest.NeedAttr(t, attr, "a mount namespace", "lockpin/overlay")
	p := proctest.Start(t, "lockpin/overlay", proctest.Params(t.TempDir()), proctest.Attr(attr))
	var said []string
	p.Recv(t, &said)
	p.WaitExit(t)
	if said[0] != "" {
		t.Skip("needs overlayfs: " + said[0])
	}
	require.Contains(t, said[1], "overlayfs")
	require.Equal(t, []string{"", ""}, said[2:])
}
