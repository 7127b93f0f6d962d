//go:build !(linux && amd64)

package arenatest

import (
	"fmt"
	"os"
	"runtime"
)

func record(*os.File, func()) (*recording, error) {
	return nil, fmt.Errorf("%w: it is %s on %s, and this needs linux on amd64", errNoTrace, runtime.GOOS, runtime.GOARCH)
}

func where([]uintptr) string { return "" }
