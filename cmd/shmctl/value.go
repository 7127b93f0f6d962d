//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/internal/typetext"
)

type valueCmd struct {
	Arena string `arg:"" help:"Name, path or dump."`
	Name  string `arg:"" help:"Name of the object, or its offset."`
}

// value is the contents of an object that stores a value, field by field.
type value struct {
	Object  string  `json:"object"`
	Commits *uint64 `json:"commits,omitempty"` // of a Synchronized
	Fields  []field `json:"fields"`
	More    bool    `json:"more"` // the value has more fields or bytes than are shown
}

// field is one part of a value: a number, or an array of numbers.
type field struct {
	Field  string `json:"field"` // "" if the value is no struct
	Type   string `json:"type"`
	Offset uint64 `json:"offset"` // from the start of the value
	Value  any    `json:"value"`

	text string
}

const (
	valueBytes  = 1 << 20 // the most bytes that the command reads
	valueFields = 10_000  // the most fields that the command shows
	valueTries  = 100     // how often the command tries to read a Synchronized that changes meanwhile

	// Offsets in a Synchronized, from docs/abi.md.
	synchronizedCurrent = 192
	synchronizedCopies  = 256
)

var (
	kindSynchronized = arenakernel.KindOf("SYNC")
	kindQueue        = arenakernel.KindOf("QUEU")
)

// Run shows the value of an object.
func (c *valueCmd) Run(s *session) error {
	src, err := open(c.Arena)
	if err != nil {
		return err
	}
	defer src.Close()
	o, err := findObject(src, c.Name)
	if err != nil {
		return err
	}
	v, err := readValue(src, o)
	if err != nil {
		return err
	}
	d := s.begin("value")
	d.Value = v
	if s.json {
		return writeJSON(s.stdout, d)
	}
	if v.Commits != nil {
		fmt.Fprintf(s.stdout, "%s after %d commits\n", v.Object, *v.Commits)
	}
	t := newTable(s.stdout, "FIELD", "TYPE", "VALUE")
	for _, f := range v.Fields {
		t.row(f.Field, f.Type, f.text)
	}
	if err := t.flush(); err != nil {
		return err
	}
	if v.More {
		fmt.Fprintln(s.stdout, "there is more, which is not shown")
	}
	return nil
}

// findObject returns the object with that name or offset. It chooses by the same rules as find.
func findObject(src *source, name string) (arenakernel.Object, error) {
	found, err := find(src.look(), name)
	if err != nil {
		return arenakernel.Object{}, err
	}
	for _, o := range src.ins.Objects() {
		if uint64(o.Offset) == found.Offset {
			return o.Object, nil
		}
	}
	return arenakernel.Object{}, missing{fmt.Sprintf("%s %s was deleted meanwhile", found.Type, found.Name)}
}

// readValue reads the value of an object from the file.
func readValue(src *source, o arenakernel.Object) (*value, error) {
	name := diagnose.Clean(o.String())
	text := src.ins.TypeText(o)
	switch {
	case o.Kind == kindQueue && text != "":
		return nil, missing{fmt.Sprintf("%s is a Queue, whose items shmctl does not show; an item has %s", name, fieldsOf(text))}
	case o.Kind != arenakernel.KindValue && o.Kind != kindSynchronized:
		return nil, missing{fmt.Sprintf("%s is %s; only a Value and a Synchronized have a value", name, arenakernel.KindPhrase(o.Kind))}
	case text == "":
		return nil, missing{name + " has no description of its type: a C program made it without one, or an older release, or its type is too large"}
	case src.opts.Dump != nil && !src.opts.Dump.WithData:
		return nil, missing{"the dump has no values: make one with --with-data"}
	}
	t, err := typetext.Parse(text)
	if err != nil {
		return nil, err
	}
	v := &value{Object: name}
	b := make([]byte, min(t.Size, valueBytes))
	if o.Kind == kindSynchronized {
		err = v.readSynchronized(src.ins.File(), o, t.Size, b)
	} else if t.Size > o.Size {
		err = missing{fmt.Sprintf("%s has %d bytes, and its type %d", name, o.Size, t.Size)}
	} else {
		_, err = src.ins.File().ReadAt(b, int64(o.Body))
	}
	if err != nil {
		return nil, err
	}
	if !src.ins.IsThere(o) {
		return nil, missing{name + " was deleted while shmctl read it"}
	}
	parts, more := typetext.Values(t, b, valueFields)
	v.More = more
	v.Fields = []field{}
	for _, p := range parts {
		v.Fields = append(v.Fields, field{Field: p.Path, Type: p.Kind, Offset: p.Offset, Value: p.Data, text: p.Text})
	}
	return v, nil
}

// fieldsOf returns a list of the first fields of a type, for a message. The parameter text is the description of the
// type.
func fieldsOf(text string) string {
	const most = 12
	t, err := typetext.Parse(text)
	if err != nil {
		return "a type whose description is damaged"
	}
	parts, more := typetext.Values(t, make([]byte, min(t.Size, valueBytes)), most)
	var all []string
	for _, p := range parts {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s at %d", p.Path, p.Kind, p.Offset)))
	}
	if more {
		all = append(all, "...")
	}
	return strings.Join(all, ", ")
}

// readSynchronized reads the valid copy of a Synchronized whose value has size bytes. Processes may change the
// Synchronized meanwhile. So readSynchronized compares the number of commits before and after: if the number is the
// same, the copy is consistent.
func (v *value) readSynchronized(f *os.File, o arenakernel.Object, size uint64, b []byte) error {
	second := synchronizedCopies + (size+63)&^63
	if o.Size < second || o.Size-second < size {
		return missing{fmt.Sprintf("%s has %d bytes, which is not enough for two values of %d", v.Object, o.Size, size)}
	}
	commits := func() (uint64, error) {
		var word [8]byte
		_, err := f.ReadAt(word[:], int64(o.Body)+synchronizedCurrent)
		return binary.LittleEndian.Uint64(word[:]), err
	}
	for range valueTries {
		before, err := commits()
		if err != nil {
			return err
		}
		at := uint64(synchronizedCopies)
		if before&1 != 0 {
			at = second
		}
		if _, err := f.ReadAt(b, int64(uint64(o.Body)+at)); err != nil {
			return err
		}
		after, err := commits()
		if err != nil {
			return err
		}
		if before == after {
			v.Commits = &after
			return nil
		}
	}
	return errors.New(v.Object + " changed while shmctl read it, each time of " + strconv.Itoa(valueTries) + "; try again")
}
