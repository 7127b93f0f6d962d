//go:build linux

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

type duCmd struct {
	watching
	Arena string `arg:"" help:"Name, path or dump."`
}

// Run lists the memory that each type of object takes, the largest first.
func (c *duCmd) Run(s *session) error {
	return s.with("du", c.Arena, func(d *document, _ *source, snap *snapshot) error {
		d.Usage, d.Findings = usageOf(snap), nil // du shows no findings
		return nil
	}, func(d *document, snap *snapshot) error {
		t := newTable(s.stdout, "TYPE", "OBJECTS", "BYTES", "MEAN", "LARGEST", "ITS BYTES")
		objects, bytes := 0, uint64(0)
		for _, u := range d.Usage {
			if u.Objects == 0 {
				t.row(u.Type, "-", size(u.Bytes), "-", "-", "-")
			} else {
				t.row(u.Type, strconv.Itoa(u.Objects), size(u.Bytes), size(u.Bytes/uint64(u.Objects)), u.Largest, size(u.Most))
			}
			objects, bytes = objects+u.Objects, bytes+u.Bytes
		}
		err := t.flush()
		fmt.Fprintf(s.stdout, "%d objects; %s in blocks, in %s of memory, of an arena of %s\n", objects, size(bytes), size(d.Arena.Used), size(uint64(d.Arena.Size)))
		return err
	})
}

// usageOf adds up the sizes of the blocks in the heap. The result has a row for each type of object, with the blocks of
// the objects, their headers and their slot records. Three further rows are for wait nodes, blocks of Alloc, and all
// other blocks.
func usageOf(s *snapshot) (all []usage) {
	inObjects := uint64(0)
	for _, o := range s.Objects {
		i := slices.IndexFunc(all, func(u usage) bool { return u.Type == o.Type })
		if i < 0 {
			i = len(all)
			all = append(all, usage{Type: o.Type})
		}
		u := &all[i]
		u.Objects++
		u.Bytes += o.Memory
		inObjects += o.Memory
		if o.Memory > u.Most || u.Largest == "" {
			u.Most, u.Largest = o.Memory, o.Name
		}
	}
	other := s.Usage.Other
	for _, n := range s.Usage.Objects {
		other += n
	}
	other -= inObjects // the result includes blocks of objects with invalid headers
	for _, u := range []usage{{Type: "wait nodes", Bytes: s.Usage.Nodes}, {Type: "blocks of Alloc", Bytes: s.Usage.Blocks}, {Type: "other blocks", Bytes: other}} {
		if u.Bytes > 0 {
			all = append(all, u)
		}
	}
	slices.SortStableFunc(all, func(a, b usage) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return all
}
