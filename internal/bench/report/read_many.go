//go:build linux

package report

import (
	"path/filepath"
	"slices"
	"strings"
)

// ReadDocuments reads several result files into one document. If several files have measured the same cell, the
// document has all of these results, and all cells of the scenario are labelled with the names of their files.
// Differences between the hosts become warnings.
func ReadDocuments(names []string) (*Document, error) {
	var all *Document
	seen := map[string]bool{}
	common := map[string]bool{} // scenarios of which several files have the same cell
	for i, name := range names {
		d, err := ReadDocument(name)
		if err != nil {
			return nil, err
		}
		for k := range d.Cells {
			d.Cells[k].file = fileLabel(names, i)
		}
		for k := range d.Cells {
			if c := &d.Cells[k]; seen[c.Key] {
				common[c.Scenario] = true
			}
		}
		for k := range d.Cells {
			seen[d.Cells[k].Key] = true
		}
		if all == nil {
			all = d
			continue
		}
		for _, text := range Differences(&all.Env, &d.Env) {
			all.Warnings = append(all.Warnings, name+": "+text)
		}
		for _, text := range d.Warnings {
			if !slices.Contains(all.Warnings, text) {
				all.Warnings = append(all.Warnings, text)
			}
		}
		all.Cells = append(all.Cells, d.Cells...)
		all.Bars = append(all.Bars, d.Bars...)
	}
	for k := range all.Cells {
		if c := &all.Cells[k]; !common[c.Scenario] {
			c.file = ""
		}
	}
	return all, nil
}

// fileLabel returns a name for file i: the last part of its path, or the whole path if another file has the same last
// part. Both are without ".json".
func fileLabel(names []string, i int) string {
	short := func(name string) string { return strings.TrimSuffix(filepath.Base(name), ".json") }
	for k := range names {
		if k != i && short(names[k]) == short(names[i]) {
			return strings.TrimSuffix(names[i], ".json")
		}
	}
	return short(names[i])
}

// name returns the name that a page shows for the subject of a cell.
func (c *Cell) name() string {
	if c.file == "" {
		return c.Subject
	}
	return c.Subject + " (" + c.file + ")"
}

// latest returns a document with one result for each cell: the one from the last file that has measured the cell.
// Advice uses this document.
func (d *Document) latest() *Document {
	one := *d
	one.Cells = nil
	at := map[string]int{}
	for _, c := range d.Cells {
		if i, ok := at[c.Key]; ok {
			one.Cells[i] = c
			continue
		}
		at[c.Key] = len(one.Cells)
		one.Cells = append(one.Cells, c)
	}
	return &one
}

// byFile splits a document into one document for each file. It returns only one document if the measurements have no
// file names.
func (d *Document) byFile() (list []*Document) {
	at := map[string]int{}
	for _, c := range d.Cells {
		i, ok := at[c.file]
		if !ok {
			i = len(list)
			at[c.file] = i
			one := *d
			one.Cells = nil
			list = append(list, &one)
		}
		list[i].Cells = append(list[i].Cells, c)
	}
	return list
}

// called adds the name of the file from which d was read to the titles of the figures, if d has such a name.
func (d *Document) called(figures []*figure) []*figure {
	if len(d.Cells) > 0 && d.Cells[0].file != "" {
		for _, f := range figures {
			f.Title += " (" + d.Cells[0].file + ")"
		}
	}
	return figures
}
