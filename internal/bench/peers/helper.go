//go:build linux

package peers

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/shmsync/shmsync/internal/bench"
)

// Helper is a C program that was compiled on demand, such as the program that runs the C primitives of this host.
type Helper struct {
	Path string

	// sum is the digest of the file that was built. It is empty for a file that the user named, because such a file
	// runs unchecked.
	sum string

	temporary string // the directory that is removed together with the program; "" if there is none
}

// FindHelper returns the program that runs the C primitives of this host. This is the given program, or else one that
// the compiler cc builds. The program stays in the user's cache for later runs. If the cache has no private directory,
// FindHelper builds the program for this run only.
func FindHelper(given, cc string) (*Helper, error) {
	if given != "" {
		path, err := filepath.Abs(given) // a name without a slash would be looked up in PATH
		if err != nil {
			return nil, err
		}
		return &Helper{Path: path}, checkHelper(path)
	}
	cc, err := findCompiler(cc)
	if err != nil {
		return nil, err
	}
	source, err := readPeer()
	if err != nil {
		return nil, err
	}
	return source.find(cc)
}

// find returns the program that was built from these sources in the user's cache. If the program is not there, find
// builds it first.
func (p *sources) find(cc string) (*Helper, error) {
	name := p.program(cc)
	if cache, err := os.UserCacheDir(); err == nil {
		if dir, err := privateDir(filepath.Join(cache, "shmbench")); err == nil {
			return keptHelper(p, cc, filepath.Join(dir, name))
		}
	}
	return temporaryHelper(p, cc, name)
}

// keptHelper returns the program at path. It builds the program first if there is no file at path, or if the file
// is not the program that was built there before.
func keptHelper(source *sources, cc, path string) (*Helper, error) {
	h := &Helper{Path: path}
	if sum, err := readOwn(path + ".sha256"); err == nil {
		h.sum = strings.TrimSpace(string(sum))
		if h.Check() == nil {
			return h, nil
		}
	}
	return h, h.build(source, cc)
}

// temporaryHelper builds the program in a new directory, which is removed together with the program.
func temporaryHelper(source *sources, cc, name string) (*Helper, error) {
	dir, err := os.MkdirTemp("", "shmbench-")
	if err != nil {
		return nil, err
	}
	h := &Helper{temporary: dir}
	real, err := privateDir(dir)
	if err == nil {
		h.Path = filepath.Join(real, name)
		err = h.build(source, cc)
	}
	if err != nil {
		h.Remove()
		return nil, fmt.Errorf("no place for a program in C that others cannot write to (--helper takes a file with the peers): %w", err)
	}
	return h, nil
}

// build compiles the sources. It records the digest of the program in a file next to the program.
func (h *Helper) build(source *sources, cc string) error {
	if err := source.build(cc, h.Path); err != nil {
		return err
	}
	program, err := readOwn(h.Path)
	if err != nil {
		return err
	}
	h.sum = sumOf(program)
	note := h.Path + ".sha256"
	if err := os.Remove(note); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(note, []byte(h.sum+"\n"), 0o600)
}

// Check is called before each run of the program. It returns an error if the file at Path is not the program that
// was built, or if other users could have written to it.
func (h *Helper) Check() error {
	if h.sum == "" {
		return nil
	}
	if _, err := privateDir(filepath.Dir(h.Path)); err != nil {
		return err
	}
	program, err := readOwn(h.Path)
	if err != nil {
		return err
	}
	if sum := sumOf(program); sum != h.sum {
		return fmt.Errorf("%s: its digest is %s, that of what was built is %s", h.Path, sum, h.sum)
	}
	return nil
}

// Built returns the compiler that built the helper, with its flags, and the libc of the helper. Both are empty if the
// helper does not run.
func (h *Helper) Built() (compiler, libc string) {
	if h == nil || h.Check() != nil {
		return "", ""
	}
	answer, err := ask(h.Path, builtQuestion)
	if err != nil {
		return "", ""
	}
	compiler, libc, _ = strings.Cut(answer, "\n")
	return compiler, libc
}

// Unfit returns the reason why a subject cannot run with the given libc, or an empty string.
func Unfit(s *bench.Subject, libc string) string {
	if glibcOnly[s.Name()] && libc != "" && !strings.HasPrefix(libc, "glibc ") {
		return "needs glibc, and the peers in C have " + libc
	}
	return ""
}

// Remove removes the program if it was built for this run only.
func (h *Helper) Remove() {
	if h != nil && h.temporary != "" {
		os.RemoveAll(h.temporary)
	}
}

// readOwn reads a regular file that belongs to this user and that nobody else can write to. It
// does not follow a symbolic link.
func readOwn(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if uid := int(st.Sys().(*syscall.Stat_t).Uid); !st.Mode().IsRegular() || uid != os.Geteuid() || st.Mode()&othersWrite != 0 {
		return nil, fmt.Errorf("%s: it is not a file of user %d, or others can write to it: user %d, mode %v", path, os.Geteuid(), uid, st.Mode())
	}
	return io.ReadAll(f)
}

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
