package stepkill

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"
)

// Watch detects changes of the bytes of a file in shared memory that another process has mapped.
type Watch struct {
	f       *os.File
	bytes   []byte
	extents [][2]int // the parts of the file that are backed by memory
	last    []byte
}

// NewWatch returns a watch of the file at path.
func NewWatch(path string) (*Watch, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	w := &Watch{f: f, bytes: b, last: make([]byte, len(b))}
	return w, w.Refresh()
}

// Refresh finds the parts of the file that are backed by memory now. The Watch never reads other parts, because reading
// them would allocate memory.
func (w *Watch) Refresh() error {
	w.extents = w.extents[:0]
	for at := int64(0); at < int64(len(w.bytes)); {
		from, err := unix.Seek(int(w.f.Fd()), at, unix.SEEK_DATA)
		if err == unix.ENXIO {
			return nil
		}
		if err != nil {
			return os.NewSyscallError("lseek", err)
		}
		to, err := unix.Seek(int(w.f.Fd()), from, unix.SEEK_HOLE)
		if err != nil {
			return os.NewSyscallError("lseek", err)
		}
		w.extents = append(w.extents, [2]int{int(from), int(to)})
		at = to
	}
	return nil
}

// Changed reports whether the bytes of the file differ from those at the last call of Changed.
func (w *Watch) Changed() (changed bool) {
	const piece = 4096
	for _, e := range w.extents {
		for at := e[0]; at < e[1]; at += piece {
			end := min(at+piece, e[1])
			if !bytes.Equal(w.bytes[at:end], w.last[at:end]) {
				copy(w.last[at:end], w.bytes[at:end])
				changed = true
			}
		}
	}
	return changed
}

// Image returns a copy of the bytes as they were at the last call of Changed.
func (w *Watch) Image() []byte { return bytes.Clone(w.last) }

// Is reports whether the bytes that the last call of Changed has read are equal to an image.
func (w *Watch) Is(image []byte) bool { return bytes.Equal(w.last, image) }

// WriteImage creates a file with the bytes of an image. Pages of zeros take no memory.
func WriteImage(path string, image []byte) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(int64(len(image))); err != nil {
		return err
	}
	const page = 4096
	var zeroes [page]byte
	for at := 0; at < len(image); at += page {
		if b := image[at:min(at+page, len(image))]; !bytes.Equal(b, zeroes[:len(b)]) {
			if _, err := f.WriteAt(b, int64(at)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close unmaps the file. The Watch must not be used any more.
func (w *Watch) Close() error {
	unix.Munmap(w.bytes)
	return w.f.Close()
}
