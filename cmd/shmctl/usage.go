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
		d.Usage = usageOf(snap)
		return nil
	}, func(d *document, snap *snapshot) error {
		t := newTable(s.stdout, "TYPE", "OBJECTS", "BYTES", "MEAN", "LARGEST", "ITS BYTES")
		objects, bytes := 0, uint64(0)
		for _, u := range d.Usage {
			t.row(u.Type, strconv.Itoa(u.Objects), size(u.Bytes), size(u.Bytes/uint64(u.Objects)), u.Largest, size(u.Most))
			objects, bytes = objects+u.Objects, bytes+u.Bytes
		}
		err := t.flush()
		fmt.Fprintf(s.stdout, "%d objects, %s; the heap uses %s of an arena of %s\n", objects, size(bytes), size(d.Arena.Used), size(uint64(d.Arena.Size)))
		return err
	})
}

// usageOf adds up the bodies of the objects by type. It does not include headers, and the
// rounding of the heap to block sizes.
func usageOf(s *snapshot) (all []usage) {
	for _, o := range s.Objects {
		i := slices.IndexFunc(all, func(u usage) bool { return u.Type == o.Type })
		if i < 0 {
			i = len(all)
			all = append(all, usage{Type: o.Type})
		}
		u := &all[i]
		u.Objects++
		u.Bytes += o.Size
		if o.Size > u.Most || u.Largest == "" {
			u.Most, u.Largest = o.Size, o.Name
		}
	}
	slices.SortStableFunc(all, func(a, b usage) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return all
}
