// Package mdtable reads the tables of the documents, so that tests can compare
// what is written there with the code.
package mdtable

import (
	"fmt"
	"os"
	"strings"
)

// Table is one table of a Markdown document.
type Table struct {
	Section string // the heading above the table, without the marks
	Columns []string
	Rows    []Row
}

// Row is one row of a table: a cell for each column.
type Row struct {
	Line  int // number of the line in the document, from 1
	Cells []string
}

// ReadFile reads the tables of a document.
func ReadFile(path string) ([]Table, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(string(src))
}

// Parse reads the tables of a document. It returns an error if a row has more or fewer cells than the header of its
// table, because a renderer would not show them all.
func Parse(src string) (tables []Table, err error) {
	var section string
	var t *Table
	fenced := false
	number := 0
	for line := range strings.Lines(src) {
		number++
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		switch {
		case fenced:
			t = nil
		case strings.HasPrefix(line, "#"):
			section = strings.TrimSpace(strings.TrimLeft(line, "#"))
			t = nil
		case !strings.HasPrefix(line, "|"):
			t = nil
		case t == nil:
			tables = append(tables, Table{Section: section, Columns: cells(line)})
			t = &tables[len(tables)-1]
		case strings.Trim(line, "|-: ") == "" && len(t.Rows) == 0 && strings.Contains(line, "-"):
		default:
			row := Row{Line: number, Cells: cells(line)}
			if len(row.Cells) != len(t.Columns) {
				return nil, fmt.Errorf("line %d: %d cells in a table of %d columns", number, len(row.Cells), len(t.Columns))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return tables, nil
}

// cells splits a row. A bar that is escaped belongs to its cell.
func cells(line string) (cells []string) {
	const bar = "\x00"
	line = strings.ReplaceAll(line, `\|`, bar)
	line = strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|")
	for cell := range strings.SplitSeq(line, "|") {
		cells = append(cells, strings.TrimSpace(strings.ReplaceAll(cell, bar, "|")))
	}
	return cells
}

// In gives the tables of the sections whose heading begins with prefix.
func In(tables []Table, prefix string) (found []Table) {
	for _, t := range tables {
		if strings.HasPrefix(t.Section, prefix) {
			found = append(found, t)
		}
	}
	return found
}

// With gives the tables whose first columns have these headings.
func With(tables []Table, columns ...string) (found []Table) {
	for _, t := range tables {
		if len(t.Columns) >= len(columns) && strings.Join(t.Columns[:len(columns)], "|") == strings.Join(columns, "|") {
			found = append(found, t)
		}
	}
	return found
}

// Code gives what a cell has between back quotes, in order.
func Code(cell string) (found []string) {
	for i, part := range strings.Split(cell, "`") {
		if i%2 == 1 {
			found = append(found, part)
		}
	}
	return found
}

// Text returns the text between a heading with the given name and the next heading.
func Text(src, heading string) string {
	var b strings.Builder
	inside := false
	for line := range strings.Lines(src) {
		if strings.HasPrefix(line, "#") {
			inside = strings.TrimSpace(strings.TrimLeft(line, "#")) == heading
		} else if inside {
			b.WriteString(line)
		}
	}
	return b.String()
}
