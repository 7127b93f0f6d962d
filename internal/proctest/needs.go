package proctest

import (
	"os"
	"os/exec"
	"testing"
)

// programs maps a program to the environment variable that makes a test fail without the program. The script .ci/run
// sets the variable if it has found or installed the program.
var programs = map[string]string{
	"aarch64-linux-gnu-gcc": "SHMSYNC_NEED_ARM64_GCC",
	"aarch64-linux-gnu-g++": "SHMSYNC_NEED_ARM64_GCC",
	"clang":                 "SHMSYNC_NEED_CLANG",
	"clang++":               "SHMSYNC_NEED_CLANG",
	"g++":                   "SHMSYNC_NEED_CXX",
	"gcc":                   "SHMSYNC_NEED_CC",
	"musl-gcc":              "SHMSYNC_NEED_MUSL",
	"promtool":              "SHMSYNC_NEED_PROMTOOL",
	"qemu-aarch64-static":   "SHMSYNC_NEED_QEMU_USER",
	"qemu-i386-static":      "SHMSYNC_NEED_QEMU_USER", // in the same package as qemu-aarch64-static
}

// Program returns the path of a program that the test runs. Without the program it calls [Missing].
func Program(t testing.TB, name string, helpers ...string) string {
	t.Helper()
	need, ok := programs[name]
	if !ok {
		t.Fatalf("proctest: no environment variable requires the program %s", name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, need, "needs "+name, helpers...)
	}
	return path
}

// Missing ends a test that cannot run on this machine, for the given reason. If the environment variable need is
// set, the test fails. Otherwise it is skipped, and the given helpers count as used; see [Skip].
func Missing(t testing.TB, need, reason string, helpers ...string) {
	t.Helper()
	if os.Getenv(need) != "" {
		t.Fatalf("%s is set, and the test %s", need, reason)
	}
	Skip(t, reason, helpers...)
}
