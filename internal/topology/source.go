package topology

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// source provides the files of this host or of a recorded host.
type source interface {
	file(name string) ([]byte, bool)
	names(dir string) []string // names of the entries of a directory, sorted
}

// system is a source that reads a directory tree.
type system struct{ fs.FS }

func (s system) file(name string) ([]byte, bool) {
	b, err := fs.ReadFile(s.FS, name)
	return b, err == nil
}

func (s system) names(dir string) (list []string) {
	entries, err := fs.ReadDir(s.FS, dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// recording is a source that has its files and symbolic links in memory.
type recording struct {
	files map[string][]byte
	links map[string]string
	dirs  map[string]map[string]bool
}

func newRecording() *recording {
	return &recording{files: map[string][]byte{}, links: map[string]string{}, dirs: map[string]map[string]bool{}}
}

// enter records a file name in its directory, the name of that directory in its parent directory, and so on.
func (r *recording) enter(name string) {
	for dir := path.Dir(name); ; name, dir = dir, path.Dir(dir) {
		if r.dirs[dir] == nil {
			r.dirs[dir] = map[string]bool{}
		}
		r.dirs[dir][path.Base(name)] = true
		if dir == "." || dir == "/" {
			return
		}
	}
}

func (r *recording) add(name string, text []byte) {
	r.files[name] = append(r.files[name], text...)
	r.enter(name)
}

// maxLinks is the largest number of symbolic links that are followed in a path.
const maxLinks = 8

// resolve replaces the symbolic links in a path by their targets.
func (r *recording) resolve(name string) string {
again:
	for range maxLinks {
		for end := range name {
			if name[end] != '/' {
				continue
			}
			if to, ok := r.links[name[:end]]; ok {
				name = path.Join(path.Dir(name[:end]), to) + name[end:]
				continue again
			}
		}
		if to, ok := r.links[name]; ok {
			name = path.Join(path.Dir(name), to)
			continue
		}
		return name
	}
	return name
}

func (r *recording) file(name string) ([]byte, bool) {
	b, ok := r.files[r.resolve(name)]
	return b, ok
}

func (r *recording) names(dir string) (list []string) {
	for name := range r.dirs[r.resolve(dir)] {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// open opens a recording: a directory, a .tree file, or a tar archive.
func open(name string) (source, error) {
	info, err := os.Stat(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is no recorded tree: there is no such file", name)
		}
		return nil, err
	}
	if info.IsDir() {
		return system{os.DirFS(name)}, nil
	}
	if strings.HasSuffix(name, ".tree") {
		r := newRecording()
		return r, r.readTree(name, 0)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readArchive(f)
}

// maxFile is the largest number of bytes that are read from a file of an archive. The files of sysfs are short.
const maxFile = 1 << 20

// readArchive reads a tar archive, which may be compressed by gzip or bzip2.
func readArchive(f io.Reader) (source, error) {
	b := bufio.NewReader(f)
	var plain io.Reader = b
	magic, _ := b.Peek(3)
	switch {
	case bytes.Equal(magic, []byte("BZh")):
		plain = bzip2.NewReader(b)
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, err
		}
		plain = z
	}
	r := newRecording()
	for t := tar.NewReader(plain); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("no archive of tar: %w", err)
		}
		name := below(path.Clean(h.Name))
		if name == "" {
			continue
		}
		switch h.Typeflag {
		case tar.TypeReg:
			text, err := io.ReadAll(io.LimitReader(t, maxFile))
			if err != nil {
				return nil, err
			}
			r.add(name, text)
		case tar.TypeSymlink:
			r.links[name] = h.Linkname
			r.enter(name)
		case tar.TypeDir:
			r.enter(name)
		}
	}
	return r, nil
}

// below returns the part of a file name that begins with the directory sys or proc. It returns an empty string if the
// name contains neither.
func below(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		if p == "sys" || p == "proc" {
			return path.Join(parts[i:]...)
		}
	}
	return ""
}

// maxIncludes is how deep .tree files may include each other.
const maxIncludes = 8

// readTree reads a .tree file. A line has the form PATH: TEXT. Several lines with the same path give a text of
// several lines. {LIST} in a path, such as {0-3}, stands for each number of the list. In the text, {} stands for the
// number of the first list, {+N} for that number plus N, and {-N} for that number minus N. A line "@include FILE"
// includes all files of another .tree file. Later lines with the path of an included file replace its text.
func (r *recording) readTree(name string, depth int) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if depth > maxIncludes {
		return fmt.Errorf("%s: trees include each other", name)
	}
	mine := map[string]bool{}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		if other, ok := strings.CutPrefix(line, "@include "); ok {
			if err := r.readTree(filepath.Join(filepath.Dir(name), strings.TrimSpace(other)), depth+1); err != nil {
				return err
			}
			continue
		}
		file, value, ok := strings.Cut(line, ":")
		if !ok {
			return fmt.Errorf("%s:%d: want PATH: TEXT", name, number)
		}
		err := expand(file, strings.TrimPrefix(value, " "), func(file, value string) {
			if !mine[file] {
				mine[file] = true
				delete(r.files, file)
			}
			r.add(file, []byte(value))
		})
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, number, err)
		}
	}
	return nil
}
