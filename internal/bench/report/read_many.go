//go:build linux

package report

import (
	"path/filepath"
	"slices"
	"strings"
)

// ReadDocuments reads several result files as one. Where they have cells of a scenario in
// common, all of that scenario bear the names of their files, and are shown beside each
// other. In what the hosts differ becomes a warning.
func ReadDocuments(names []string) (*Document, error) {
	var all *Document
	seen := map[string]bool{}
	common := map[string]bool{} // scenarios
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

// fileLabel is the name of a result file without what all of them have.
func fileLabel(names []string, i int) string {
	short := func(name string) string { return strings.TrimSuffix(filepath.Base(name), ".json") }
	for k := range names {
		if k != i && short(names[k]) == short(names[i]) {
			return strings.TrimSuffix(names[i], ".json")
		}
	}
	return short(names[i])
}

// name is what a page calls the subject of a cell.
func (c *Cell) name() string {
	if c.file == "" {
		return c.Subject
	}
	return c.Subject + " (" + c.file + ")"
}

// latest is the document with the cells of the last file that has them: what advice is
// about.
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

// byFile are the cells of each file as a document of its own; without names of files,
// that is all of them.
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

// called adds the name of the file, where there is one.
func (d *Document) called(figures []*figure) []*figure {
	if len(d.Cells) > 0 && d.Cells[0].file != "" {
		for _, f := range figures {
			f.Title += " (" + d.Cells[0].file + ")"
		}
	}
	return figures
}
