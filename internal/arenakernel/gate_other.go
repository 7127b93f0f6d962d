//go:build !linux

package arenakernel

import (
	"os"
	"syscall"

	"github.com/shmsync/shmsync"
)

const openFlags = 0

var (
	errBusy     error = syscall.EBUSY
	errDeadlock error = shmsync.Errno(0x23) // EDEADLK of Linux
)

func anyByteLocked(*os.File, int64, int64) (bool, error) { return false, shmsync.ErrNotSupported }
func anyOwner(os.FileInfo) []uint32                      { return nil }
func inode(os.FileInfo) uint64                           { return 0 }
func renameNew(from, to string) error                    { return shmsync.ErrNotSupported }
func renameNoReplace(from, to string) error              { return shmsync.ErrNotSupported }
func outlivesBoot(*os.File) bool                         { return false }
func nextData(_ *os.File, off uint64) uint64             { return off }
func isShortage(error) bool                              { return false }
func (a *Arena) askForBoot() error                       { return nil }
func (a *Arena) rebooted() bool                          { return false }
func (a *Arena) rememberBoot()                           {}
func (a *Arena) writeBack(number, synced uint32)         {}
func (a *Arena) epochOfWriteBack() (number, synced uint32, in bool) {
	return 0, 0, false
}
