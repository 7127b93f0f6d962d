//go:build linux

package host

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
)

// kernelNames are the kernel's names of the architectures for which this program is built.
var kernelNames = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// translated reports whether the program's instructions are not those of the host: something such
// as QEMU's user mode translates them, and shows the host's own files.
func translated(goarch, kernelArch string, cpuinfo []byte) bool {
	if kernelArch != "" && kernelNames[goarch] != "" {
		return kernelArch != kernelNames[goarch]
	}
	// A kernel before 6.1 does not say. But each architecture has a field that the others lack.
	return goarch == "arm64" && bytes.Contains(cpuinfo, []byte("vendor_id")) ||
		goarch == "amd64" && bytes.Contains(cpuinfo, []byte("CPU implementer"))
}

// translatedOn names the CPU of a translated program.
func translatedOn(model string) string {
	return fmt.Sprintf("%s, emulated (QEMU or the like) on %s", runtime.GOARCH, model)
}

// isTranslated reports whether this program is translated.
func isTranslated() bool {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		b = nil // the kernel does not say
	}
	return translated(runtime.GOARCH, ReadLine("/proc/sys/kernel/arch"), b)
}
