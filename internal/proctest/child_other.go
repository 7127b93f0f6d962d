//go:build !linux

package proctest

import "os"

func stdin() *os.File { return os.Stdin }
