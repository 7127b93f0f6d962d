// Package ccbuild compiles the C programs of the examples with the C header.
package ccbuild

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// ErrNoCompiler is the error if there is no C compiler.
var ErrNoCompiler = errors.New("there is no C compiler: set CC")

// Compiler returns the path of the C compiler. The environment variable CC names it. If CC is not set, Compiler
// searches for one.
func Compiler() (string, error) {
	for _, cc := range []string{os.Getenv("CC"), "cc", "gcc", "clang"} {
		if path, err := exec.LookPath(cc); cc != "" && err == nil {
			return path, nil
		}
	}
	return "", ErrNoCompiler
}

// Root returns the directory of the files of this module. A program that was built with -trimpath does not know that
// directory. In such a program, Root asks the go command, which searches from the current directory.
func Root() (string, error) {
	if _, file, _, _ := runtime.Caller(0); filepath.IsAbs(file) {
		return filepath.Join(filepath.Dir(file), "..", "..", ".."), nil
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/shmsync/shmsync").Output()
	if err != nil {
		return "", fmt.Errorf("the sources of shmsync are not to be found from the current directory: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Build compiles a C program of one file into the file binary. source is relative to Root.
func Build(source, binary string, flags ...string) error {
	cc, err := Compiler()
	if err != nil {
		return err
	}
	root, err := Root()
	if err != nil {
		return err
	}
	args := append([]string{"-std=c11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
		"-I", filepath.Join(root, "include")}, flags...)
	args = append(args, filepath.Join(root, source), "-o", binary, "-pthread")
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w\n%s", cc, args, err, out)
	}
	return nil
}
