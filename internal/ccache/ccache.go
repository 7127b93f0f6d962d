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

// keepFor is how long a kept program stays after its last use.
const keepFor = 14 * 24 * time.Hour

// Compile compiles a program to the file output. The parameter args has the sources and the flags, but not the flag -o.
// If the same program is in the cache, output becomes a symbolic link to the kept program. The text of an error has the
// output of the compiler.
//
// Programs are kept below the user's cache directory. The name of a kept program is a hash of the preprocessed sources,
// the flags, the objects, and the path, size and time of the compiler. The linker and the libraries are not part of the
// hash. A program that fails to compile is not kept. Without a cache directory, each call compiles.
func Compile(cc string, args []string, output string) error {
	_, err := CompileWith(cc, args, nil, output)
	return err
}

// CompileWith compiles a program and links it with object files. With the argument -c in args, it makes an object file.
// It returns the path of the kept file, which is different for each content. The parameter objects has paths that
// earlier calls have returned.
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

// compileKept compiles a program to the path kept. Several processes may compile the same program at the same time.
func compileKept(cc string, args []string, kept string) error {
	dir := filepath.Dir(kept)
	tidy(dir)
	unfinished, err := os.MkdirTemp(dir, "unfinished-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(unfinished)
	// The compiler writes the program, and this process must never have it open for writing. Otherwise, a child that
	// another goroutine forks could inherit the descriptor. The program could not be executed while the child has it
	// (ETXTBSY).
	program := filepath.Join(unfinished, "program")
	if err := run(cc, append(args[:len(args):len(args)], "-o", program)); err != nil {
		return err
	}
	return os.Rename(program, kept)
}

// place returns the path at which a program is kept, even if it is not kept yet.
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
		// The hash must not depend on the names of directories, because temporary directories get other names in each
		// run. The preprocessor writes these names into line markers.
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

// tidy removes programs whose last use is longer ago than keepFor.
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
