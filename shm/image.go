package shm

import (
	"errors"
	"io"
	"os"
)

// imagePiece is the size of the pieces in which an Image reads a file.
const imagePiece = 64 << 10

// Image is a private copy of the bytes of a segment. It is for a tool that examines the segment from
// outside and must not disturb its users. The file is opened for reading and never mapped. So the tool
// cannot write to the file by mistake, and it does not die by SIGBUS when the file is truncated.
// Reading a hole of the file does not allocate a page, as it would through a mapping.
//
// Fetch copies bytes from the file when they are needed. The copied bytes stay the same until
// Refresh. Only one goroutine at a time may use an Image.
type Image struct {
	name string
	file *os.File
	mem  []byte
	have []bool   // whether each piece has been read
	read []uint64 // the pieces that have been read
	err  error    // the first error of a read
}

// OpenImage returns an image of the segment /dev/shm/name or, if name has a slash, of the file at that
// path. The file may belong to any user, because a reader of an Image trusts none of its bytes.
//
// Unlike [OpenAt], OpenImage follows symbolic links in a path, also at its end, such as /proc/PID/fd/N. This is safe,
// because the caller chooses the path, and the image never changes the file. OpenImage follows no link in /dev/shm,
// where every user may create links. It opens only regular files.
func OpenImage(name string) (*Image, error) { return openImage(name) }

// ImageOf returns an image of an open file. From then on the file belongs to the image, even if ImageOf
// returns an error.
func ImageOf(f *os.File) (*Image, error) { return imageOf(f) }

// Name returns the path of the file.
func (m *Image) Name() string { return m.name }

// File returns the open file, which is open only for reading. It is closed together with the image.
func (m *Image) File() *os.File { return m.file }

// Size returns the size that the file had when it was opened.
func (m *Image) Size() int64 { return int64(len(m.mem)) }

// Bytes returns the copy. Bytes that have not been fetched are zero.
func (m *Image) Bytes() []byte { return m.mem }

// Fetch makes sure that n bytes from off have been read. If the file has become shorter, the missing
// bytes are zero.
func (m *Image) Fetch(off, n uint64) {
	size := uint64(len(m.mem))
	if off >= size || n == 0 {
		return
	}
	for i := off / imagePiece; i <= (off+min(n, size-off)-1)/imagePiece; i++ {
		if !m.have[i] {
			m.have[i] = true
			m.read = append(m.read, i)
			m.readPiece(i)
		}
	}
}

// readPiece copies a piece of the file, unless the piece is a hole. A file of another user may have a size of many
// terabytes, and a copy of its holes would take that much memory.
func (m *Image) readPiece(i uint64) {
	off := int64(i * imagePiece)
	piece := m.mem[off:min(off+imagePiece, int64(len(m.mem)))]
	if isHole(m.file, off, int64(len(piece))) {
		return // the bytes of the copy are zero
	}
	_, err := m.file.ReadAt(piece, off)
	switch {
	case err == nil || m.err != nil:
	case errors.Is(err, io.EOF):
		m.err = &opError{op: "read", name: m.name, why: "the file has become shorter", kind: ErrIncompatible, err: err}
	default:
		m.err = &opError{op: "read", name: m.name, err: err}
	}
}

// Refresh forgets all bytes that have been read.
func (m *Image) Refresh() {
	for _, i := range m.read {
		m.have[i] = false
	}
	m.read, m.err = m.read[:0], nil
	m.forget()
}

// Err returns the first error since the last Refresh, or nil. Bytes that could not be read are
// zero.
func (m *Image) Err() error { return m.err }

// Close frees the memory and closes the file.
func (m *Image) Close() error {
	m.drop()
	return m.file.Close()
}
