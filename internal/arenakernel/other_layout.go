package arenakernel

import (
	"encoding/binary"
	"io"
	"os"

	"github.com/shmsync/shmsync/shm"
)

// OtherLayout is what this program can find out about an arena whose layout it does not know.
type OtherLayout struct {
	Path    string
	Size    int64
	Version uint32 // version of the layout
	InUse   bool   // whether a process has the arena open
}

// InspectOtherLayout examines an arena that Inspect cannot read because of its layout. It can do so because the
// magic number, the version and the byte locks of participants are at the same places in every layout. The
// second result is false if the file is no arena, or is an arena that Inspect can read.
func InspectOtherLayout(name string) (l OtherLayout, ok bool) {
	l.Path = name
	if !isPath(name) {
		l.Path = shm.Dir + "/" + name
	}
	f, err := os.OpenFile(l.Path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return l, false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() { // a read of a pipe would wait for its other end
		return l, false
	}
	header := make([]byte, hdrVersion+4)
	if _, err := io.ReadFull(f, header); err != nil || string(header[:len(magic)]) != magic {
		return l, false
	}
	if binary.LittleEndian.Uint32(header[hdrOrder:]) != orderMark {
		return l, false
	}
	l.Size, l.Version = st.Size(), binary.LittleEndian.Uint32(header[hdrVersion:])
	if l.Version == LayoutVersion {
		return l, false
	}
	locked, err := anyByteLocked(f, 0, gateByte)
	l.InUse = locked || err != nil // if the locks cannot be read, assume that a process is in the arena
	return l, true
}
