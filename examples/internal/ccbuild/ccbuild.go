// Package ccbuild compiles the C programs of the examples with the C header.
package ccbuild

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// ErrNoCompiler says that there is no C compiler.
var ErrNoCompiler = errors.New("there is no C compiler: set CC")

// Compiler is the C compiler: what CC names, or the first that is there.
func Compiler() (string, error) {
	for _, cc := range []string{os.Getenv("CC"), "cc", "gcc", "clang"} {
		if path, err := exec.LookPath(cc); cc != "" && err == nil {
			return path, nil
		}
	}
	return "", ErrNoCompiler
}

// Include is the directory with shmsync.h.
func Include() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..", "include")
}

// Build compiles a C program of one file, to binary.
func Build(source, binary string, flags ...string) error {
	cc, err := Compiler()
	if err != nil {
		return err
	}
	args := append([]string{"-std=c11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", Include()}, flags...)
	args = append(args, source, "-o", binary, "-pthread")
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w\n%s", cc, args, err, out)
	}
	return nil
}
