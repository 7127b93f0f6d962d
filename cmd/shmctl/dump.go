//go:build linux

package main

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/shm"
)

type (
	dumpCmd struct {
		Arena    string `arg:"" help:"Name or path."`
		Output   string `short:"o" placeholder:"FILE" help:"Where to; default NAME.shmdump."`
		WithData bool   `help:"Also what users keep in the arena: blocks, values, items of queues, states."`
	}
	loadCmd struct {
		Dump string `arg:"" help:"File that dump has written."`
		File string `arg:"" help:"File to make; it must not exist."`
	}
)

// A dump is compressed by gzip. It has a line with dumpMagic, a line of JSON (dumpHeader), and
// then parts: offset and length as little-endian 64-bit numbers, and the bytes. The last part has
// the length 0.
const (
	dumpMagic = "shmctl-dump/1\n"
	partMost  = 1 << 20
	sizeMost  = 1 << 47
)

// dumpHeader has the facts about an arena that its bytes do not contain.
type dumpHeader struct {
	Schema       string        `json:"schema"`
	Name         string        `json:"name"`
	Time         time.Time     `json:"time"`
	Monotonic    int64         `json:"monotonic"`
	Size         int64         `json:"size"`
	WithData     bool          `json:"with_data"`
	Participants []participant `json:"participants"`
	Findings     []finding     `json:"findings"`
}

// Run writes a dump.
func (c *dumpCmd) Run(s *session) error {
	src, err := open(c.Arena)
	if err != nil {
		return err
	}
	defer src.Close()
	if src.isDump() {
		return refused{c.Arena + " is a dump already"}
	}
	f, snap, err := src.sure()
	if err != nil {
		return err
	}
	out := c.Output
	if out == "" {
		out = strings.ReplaceAll(strings.Trim(snap.Info.Name, "/"), "/", "_") + ".shmdump"
	}
	file, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	h := dumpHeader{Schema: schema, Name: snap.Info.Name, Time: s.now().UTC(), Monotonic: snap.Time, Size: snap.Info.Size,
		WithData: c.WithData, Participants: snap.Participants, Findings: f}
	err = writeDump(file, &h, src.ins)
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(out)
		return err
	}
	return s.did("dump", "wrote "+out)
}

// did reports what a command has done.
func (s *session) did(command string, done ...string) error {
	d := s.begin(command)
	d.Done = done
	return s.write(d)
}

// write writes the document of a command that changes something.
func (s *session) write(d *document) error {
	if s.json {
		return writeJSON(s.stdout, d)
	}
	for _, line := range d.Done {
		fmt.Fprintln(s.stdout, line)
	}
	return nil
}

func writeDump(out io.Writer, h *dumpHeader, ins *arenakernel.Inspector) error {
	z := gzip.NewWriter(out)
	head, err := json.Marshal(h)
	if err != nil {
		return err
	}
	io.WriteString(z, dumpMagic)
	z.Write(append(head, '\n'))
	part := func(off uint64, b []byte) error {
		var prefix [16]byte
		binary.LittleEndian.PutUint64(prefix[:], off)
		binary.LittleEndian.PutUint64(prefix[8:], uint64(len(b)))
		if _, err := z.Write(prefix[:]); err != nil {
			return err
		}
		_, err := z.Write(b)
		return err
	}
	if err := ins.EachPart(h.WithData, part); err != nil {
		return err
	}
	if err := part(0, nil); err != nil {
		return err
	}
	return z.Close()
}

// readDump writes the contents of a dump to the new file out.
func readDump(in io.Reader, out *os.File) (*dumpHeader, error) {
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, missing{"is no dump: " + err.Error()}
	}
	r := bufio.NewReader(z)
	magic := make([]byte, len(dumpMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != dumpMagic {
		return nil, missing{"is no dump of this version"}
	}
	line, err := readLine(r)
	if err != nil {
		return nil, err
	}
	var h dumpHeader
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, fmt.Errorf("the head of the dump: %w", err)
	}
	if h.Size <= 0 || h.Size > sizeMost {
		return nil, fmt.Errorf("the dump says that its arena has %d bytes", h.Size)
	}
	if err := out.Truncate(h.Size); err != nil {
		return nil, err
	}
	buf := make([]byte, 0, 64<<10)
	for {
		var prefix [16]byte
		if _, err := io.ReadFull(r, prefix[:]); err != nil {
			return nil, fmt.Errorf("the dump is cut off: %w", err)
		}
		off, n := binary.LittleEndian.Uint64(prefix[:]), binary.LittleEndian.Uint64(prefix[8:])
		switch {
		case n == 0:
			return &h, nil
		case n > partMost || off > uint64(h.Size) || n > uint64(h.Size)-off:
			return nil, fmt.Errorf("the dump has %d bytes at %d, of %d", n, off, h.Size)
		}
		if uint64(cap(buf)) < n {
			buf = make([]byte, 0, n)
		}
		if _, err := io.ReadFull(r, buf[:n]); err != nil {
			return nil, fmt.Errorf("the dump is cut off: %w", err)
		}
		if _, err := out.WriteAt(buf[:n], int64(off)); err != nil {
			return nil, err
		}
	}
}

// readLine reads a line of no more than 64 MiB.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) > 64<<20:
			return nil, errors.New("the head of the dump does not end")
		}
	}
}

// openDump opens a dump. It returns nil if name does not name a dump.
func openDump(name string) (*source, error) {
	if !strings.Contains(name, "/") {
		if _, err := os.Stat(shm.Dir + "/" + name); err == nil {
			return nil, nil
		}
	}
	in, err := openRegular(name)
	if err != nil {
		return nil, nil
	}
	defer in.Close()
	var magic [2]byte
	if _, err := io.ReadFull(in, magic[:]); err != nil || magic != [2]byte{0x1f, 0x8b} {
		return nil, nil
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	out, err := os.CreateTemp("", "shmctl-*")
	if err != nil {
		return nil, err
	}
	os.Remove(out.Name())
	h, err := readDump(in, out)
	if err != nil {
		out.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	ins, err := arenakernel.InspectFile(out)
	if err != nil {
		return nil, err
	}
	return &source{ins, diagnose.Options{Dump: &diagnose.Dump{Name: h.Name, Path: name, Time: h.Monotonic, WithData: h.WithData, Participants: h.Participants}}}, nil
}

// Run makes an arena file from a dump.
func (c *loadCmd) Run(s *session) error {
	in, err := os.Open(c.Dump)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(c.File, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	h, err := readDump(in, out)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(c.File)
		return fmt.Errorf("%s: %w", c.Dump, err)
	}
	return s.did("load", fmt.Sprintf("made %s of %s, dumped %s", c.File, diagnose.Clean(h.Name), h.Time.Format(time.RFC3339)))
}
