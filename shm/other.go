//go:build !linux

package shm

import (
	"iter"
	"os"
)

func unsupported(op, name string) error {
	return &opError{op: op, name: name, why: "shared memory segments need Linux", kind: ErrNotSupported}
}

func createAt(path string, size int64, init func(*Segment) error, opts *Options) (*Segment, error) {
	return nil, unsupported("create", path)
}

func openAt(path string, opts *Options) (*Segment, error) {
	return nil, unsupported("open", path)
}

func createMemfd(label string, size int64, init func(*Segment) error, opts *Options) (*Segment, error) {
	return nil, unsupported("create", "memfd:"+label)
}

func fromFile(f *os.File, opts *Options) (*Segment, error) {
	return nil, unsupported("open", f.Name())
}

func remove(path string) error { return unsupported("remove", path) }

func list(dir string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) { yield(Info{}, unsupported("list", dir)) }
}

func (s *Segment) reserve(off, n int64) error { return unsupported("reserve", s.name) }

func (s *Segment) discard(off, n int64) error { return unsupported("discard", s.name) }

func (s *Segment) reopen() (*os.File, error) { return nil, unsupported("reopen", s.name) }

func (s *Segment) place(off, n int64, p Policy) Placement {
	return Placement{Off: off, Len: n, Asked: p, Err: unsupported("place", s.name)}
}

func (s *Segment) where(off, n int64) ([]Placement, error) {
	return nil, unsupported("where", s.name)
}

func (s *Segment) hugeBytes() (int64, error) { return 0, unsupported("huge bytes", s.name) }

func (s *Segment) closeFile() error { return s.file.Close() }

func unmap(mem []byte) error { return nil }

func replace(mem []byte) (lost bool, _ error) { return false, unsupported("close", "") }

func openImage(name string) (*Image, error) { return nil, unsupported("open", name) }

func imageOf(f *os.File) (*Image, error) {
	f.Close()
	return nil, unsupported("open", f.Name())
}

func isHole(*os.File, int64, int64) bool { return false }

func (m *Image) forget() {}

func (m *Image) drop() {}
