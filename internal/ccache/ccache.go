// Package ccache compiles the C programs of tests, and keeps them. A run of the tests whose C
// sources, flags and compiler are those of an earlier run uses the programs of that run. The C
// header has 30,000 lines, so compiling a program takes longer than most tests that use it.
package ccache

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// keepFor is how long a program that no test uses is kept.
const keepFor = 14 * 24 * time.Hour

// Compile makes the program output of args, which name sources, flags and no output. It is a
// symbolic link if the program is kept. The output of the compiler is part of the error.
//
// Programs are kept below the user's cache directory, each under a hash of the sources after the
// preprocessor, the flags, and the compiler's own file. The hash does not cover the linker and the
// libraries. A program whose compilation fails is not kept. Without a cache directory, each program is
// compiled.
func Compile(cc string, args []string, output string) error {
	kept, err := place(cc, args)
	if err != nil {
		return run(cc, append(args[:len(args):len(args)], "-o", output))
	}
	if os.Chtimes(kept, time.Now(), time.Now()) != nil {
		if err := compileKept(cc, args, kept); err != nil {
			return err
		}
	}
	os.Remove(output)
	return os.Symlink(kept, output)
}

// compileKept compiles a program that is not kept yet. Another process may do the same.
func compileKept(cc string, args []string, kept string) error {
	dir := filepath.Dir(kept)
	tidy(dir)
	unfinished, err := os.MkdirTemp(dir, "unfinished-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(unfinished)
	// The compiler writes the file, and this process never has it open for writing. Otherwise a
	// process that another goroutine forks at that time could make executing it fail (ETXTBSY).
	program := filepath.Join(unfinished, "program")
	if err := run(cc, append(args[:len(args):len(args)], "-o", program)); err != nil {
		return err
	}
	return os.Rename(program, kept)
}

// place returns where the program is kept, or will be.
func place(cc string, args []string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "shmsync-ccache")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path, err := exec.LookPath(cc)
	if err != nil {
		return "", err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", err
	}
	compiler, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	read, err := exec.Command(cc, append([]string{"-E"}, args...)...).Output()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, path, compiler.Size(), compiler.ModTime().UnixNano())
	for _, a := range args {
		if dir, ok := strings.CutPrefix(a, "-I"); ok { // its name, which is new for each run, is in the line markers
			read = bytes.ReplaceAll(read, []byte(dir), nil)
			a = "-I"
		}
		fmt.Fprintf(h, "%q\n", a)
	}
	h.Write(read)
	return filepath.Join(dir, hex.EncodeToString(h.Sum(nil))), nil
}

// tidy removes programs that no test has used for long.
func tidy(dir string) {
	all, _ := os.ReadDir(dir)
	for _, e := range all {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > keepFor {
			os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

func run(cc string, args []string) error {
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", cc, strings.Join(args, " "), err, out)
	}
	return nil
}
