// Package ccache compiles the C programs of tests, and keeps the results. If a later run of the tests has the
// same C sources, flags and compiler, it uses the kept programs. The C header has 30,000 lines, so compiling a
// program takes longer than most tests that use it.
package ccache

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// keepFor is how long a program is kept that no test uses any more.
const keepFor = 14 * 24 * time.Hour

// Compile compiles a program to the file output. args has the sources and flags, and no output. If the program is
// kept, output is a symbolic link to it. The output of the compiler is part of the error.
//
// Programs are kept below the user's cache directory, each under a hash of the preprocessed sources, the flags,
// the objects, and the file of the compiler. The hash does not cover the linker and the libraries. A program that fails to
// compile is not kept. Without a cache directory, each program is compiled again.
func Compile(cc string, args []string, output string) error {
	_, err := CompileWith(cc, args, nil, output)
	return err
}

// CompileWith compiles a program and links it with object files. With the argument -c it makes an object file. An object
// is the path that an earlier call has returned: the path of a kept file changes with its content.
func CompileWith(cc string, args, objects []string, output string) (path string, err error) {
	kept, err := place(cc, args, objects)
	args = slices.Concat(args, objects)
	if err != nil {
		return output, run(cc, append(args, "-o", output))
	}
	if os.Chtimes(kept, time.Now(), time.Now()) != nil {
		if err := compileKept(cc, args, kept); err != nil {
			return "", err
		}
	}
	os.Remove(output)
	return kept, os.Symlink(kept, output)
}

// compileKept compiles a program that is not kept yet. Another process may do the same at the same time.
func compileKept(cc string, args []string, kept string) error {
	dir := filepath.Dir(kept)
	tidy(dir)
	unfinished, err := os.MkdirTemp(dir, "unfinished-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(unfinished)
	// The compiler writes the file, so this process never has the file open for writing. If it had, a child that
	// another goroutine forks at that moment would inherit the descriptor, and executing the program could fail
	// (ETXTBSY).
	program := filepath.Join(unfinished, "program")
	if err := run(cc, append(args[:len(args):len(args)], "-o", program)); err != nil {
		return err
	}
	return os.Rename(program, kept)
}

// place returns the path of the kept program, whether it exists or not.
func place(cc string, args, objects []string) (string, error) {
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
		// Omit directories: their names change with each run, and are in the line markers.
		if dir, ok := strings.CutPrefix(a, "-I"); ok {
			read = bytes.ReplaceAll(read, []byte(dir), nil)
			a = "-I"
		} else if filepath.IsAbs(a) {
			read = bytes.ReplaceAll(read, []byte(`"`+a+`"`), nil)
			a = filepath.Base(a)
		}
		fmt.Fprintf(h, "%q\n", a)
	}
	fmt.Fprintf(h, "%q\n", objects)
	h.Write(read)
	return filepath.Join(dir, hex.EncodeToString(h.Sum(nil))), nil
}

// tidy removes programs that no test has used for the time keepFor.
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
