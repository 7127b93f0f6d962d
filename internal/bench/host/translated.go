//go:build linux

package host

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
)

// kernelNames are what the kernel calls the architectures that this program is built for.
var kernelNames = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// translated tells that the program's instructions are not those of the host: something
// such as QEMU's user mode translates them, and shows the host's own files.
func translated(goarch, kernelArch string, cpuinfo []byte) bool {
	if kernelArch != "" && kernelNames[goarch] != "" {
		return kernelArch != kernelNames[goarch]
	}
	// A kernel before 6.1 does not say. Each architecture has a field that others lack.
	return goarch == "arm64" && bytes.Contains(cpuinfo, []byte("vendor_id")) ||
		goarch == "amd64" && bytes.Contains(cpuinfo, []byte("CPU implementer"))
}

// translatedOn names the CPU of a program that is translated for this host's.
func translatedOn(model string) string {
	return fmt.Sprintf("%s, emulated (QEMU or the like) on %s", runtime.GOARCH, model)
}

// isTranslated looks whether this program is.
func isTranslated() bool {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		b = nil // it does not say
	}
	return translated(runtime.GOARCH, ReadLine("/proc/sys/kernel/arch"), b)
}
