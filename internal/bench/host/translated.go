//go:build linux

package host

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
)

// kernelNames has the kernel's name of each architecture for which this program is built.
var kernelNames = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// translated reports whether this program runs in a translator such as QEMU's user mode. It compares the
// architecture of the program with the architecture that the host's files show, because a translator runs programs
// of another architecture.
func translated(goarch, kernelArch string, cpuinfo []byte) bool {
	if kernelArch != "" && kernelNames[goarch] != "" {
		return kernelArch != kernelNames[goarch]
	}
	// A kernel before 6.1 does not report its architecture. But /proc/cpuinfo has fields that only one architecture
	// has.
	return goarch == "arm64" && bytes.Contains(cpuinfo, []byte("vendor_id")) ||
		goarch == "amd64" && bytes.Contains(cpuinfo, []byte("CPU implementer"))
}

// translatedOn returns a name for the CPU that a translated program sees. The parameter model is the CPU of the host.
func translatedOn(model string) string {
	return fmt.Sprintf("%s, emulated (QEMU or the like) on %s", runtime.GOARCH, model)
}

// isTranslated reports whether this program runs in a translator such as QEMU's user mode.
func isTranslated() bool {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		b = nil // decide without it
	}
	return translated(runtime.GOARCH, ReadLine("/proc/sys/kernel/arch"), b)
}
