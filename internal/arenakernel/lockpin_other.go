//go:build !linux

package arenakernel

import (
	"os"

	"github.com/shmsync/shmsync"
)

func pinLock(*os.File) ([]byte, error) { return nil, shmsync.ErrNotSupported }

func unpinLock([]byte) {}

func losesItsPin(string) string { return "" }

func isFile(*os.File, segmentID) bool { return false }
