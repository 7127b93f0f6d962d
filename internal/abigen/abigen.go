// Package abigen makes the C side of the layout from docs/abi.md: the structs of the
// objects, the offsets of the regions, the bits and the values of the words. The tests
// called TestABI of arena and prims compare the same tables with the Go side, so the
// document is the one source of both.
package abigen

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/shmsync/shmsync/internal/mdtable"
)

// Struct is a struct of the C header and the section of the document that it is made of.
type Struct struct {
	Section string
	Name    string // without the prefix
}

// Structs are what Generate declares, in an order in which parts come before wholes.
var Structs = []Struct{
	{"Wait node", "node"},
	{"Mutex", "mutex_words"},
	{"Futex", "futex_words"},
	{"Redo entry", "redo_entry"},
	{"List of waits", "list_words"},
	{"Monitor", "monitor_words"},
	{"Semaphore", "semaphore_words"},
	{"Share of a semaphore", "semaphore_share"},
	{"Waitable", "waitable_words"},
	{"Hold of a waitable", "waitable_hold"},
	{"Sequencer", "sequence_words"},
	{"Event", "event_words"},
	{"Queue", "queue_words"},
	{"Cond", "cond_words"},
	{"Future", "future_words"},
	{"WaitGroup", "tally_words"},
	{"Share of a WaitGroup or a Latch", "tally_share"},
	{"Barrier", "barrier_words"},
	{"Share of a Barrier", "barrier_share"},
	{"Once", "once_words"},
	{"FairMutex", "fairmutex_words"},
	{"MultiLock", "multilock_head"},
	{"Bucket of keys", "multilock_bucket"},
	{"RWMutex", "rwmutex_words"},
	{"Line of a slot", "rwmutex_line"},
	{"SpinLock", "spin_words"},
	{"SignalWaker", "signal_words"},
	{"Signal line", "signal_line"},
	{"Gate", "signal_gate"},
	{"Participant row", "signal_row"},
}

// parts are the fields that are structs themselves, by their name and size.
var parts = map[string]string{
	"mon 384":      "struct shmsync__monitor_words %s",
	"sequence 768": "struct shmsync__sequence_words %s",
	"latch 192":    "struct shmsync__mutex_words %s",
	"writers 192":  "struct shmsync__mutex_words %s",
	"redo 96":      "struct shmsync__redo_entry %s[6]",
	"entries 120":  "uint64_t %s[15]",
	"stats 128":    "uint64_t %s[16]",
}

// offsets are the sections of regions that C reads by their offsets.
var offsets = []string{"Header", "Slot", "Announce record", "Obituary", "Object header"}

// bits are prefixes of the bits that a section tells of.
var bits = []Struct{
	{"Bits of a slot's state", "SLOT"},
	{"Names", "NAME"},
	{"Chunk words", "CHUNK"},
	{"Block words", "BLOCK"},
	{"Object header", "OBJECT"},
	{"Directory entry", "DIR"},
	{"Wait node", "NODE"},
	{"Mutex", "OWNER"},
	{"Wake word", "WAKE"},
	{"Futex", "FUTEX"},
	{"RWMutex gate", "GATE"},
	{"Reader word", "READER"},
	{"SpinLock", "SPIN"},
	{"Event", "EVENT"},
	{"Future", "FUTURE"},
	{"SignalWaker", "SIGNAL"},
	{"Signal status", "SIGNAL_STATUS"},
	{"Gate", "SIGNAL_GATE"},
	{"Participant row", "SIGNAL_ROW"},
}

// values are prefixes of the values that a table tells of, by its first column.
var values = map[string]string{
	"capability":         "",
	"phase":              "PHASE",
	"kind of chunk":      "CHUNK",
	"kind of block":      "BLOCK",
	"phase of an object": "OBJECT",
	"state of a node":    "NODE",
	"kind of owner word": "OWNER",
	"kind of gate":       "GATE",
	"kind of state word": "SPIN",
}

// Snake is a name of Go in the style of C.
func Snake(name string) string {
	var b strings.Builder
	before := ' '
	for i, r := range name {
		switch {
		case r == ' ' || r == '-':
			r = '_'
		case unicode.IsUpper(r) && i > 0 && unicode.IsLower(before):
			b.WriteByte('_')
		}
		before = r
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func macro(words ...string) string {
	name := "SHMSYNC_"
	for _, w := range words {
		if w != "" {
			name += "_" + strings.ToUpper(Snake(w))
		}
	}
	return name
}

// Field is a field of a struct.
type Field struct {
	Name         string // in C
	Offset, Size int
}

// Fields are those of a section's table, without what is reserved. size is that of the
// whole.
func Fields(tables []mdtable.Table, section string) (fields []Field, size int, err error) {
	t, err := table(tables, section, "offset", "size", "field")
	if err != nil {
		return nil, 0, err
	}
	for _, row := range t.Rows {
		offset, err1 := strconv.Atoi(row.Cells[0])
		length, err2 := strconv.Atoi(row.Cells[1])
		if err := cmp.Or(err1, err2); err != nil {
			return nil, 0, fmt.Errorf("line %d: %w", row.Line, err)
		}
		size = offset + length
		if name := strings.Trim(row.Cells[2], "`"); name != "reserved" {
			fields = append(fields, Field{Snake(name), offset, length})
		}
	}
	return fields, size, nil
}

func table(tables []mdtable.Table, section string, columns ...string) (mdtable.Table, error) {
	for _, t := range mdtable.With(tables, columns...) {
		if t.Section == section {
			return t, nil
		}
	}
	return mdtable.Table{}, fmt.Errorf("no table %v in section %q", columns, section)
}

// Generate makes the part of the C header of the document.
func Generate(src string) (string, error) {
	tables, err := mdtable.Parse(src)
	if err != nil {
		return "", err
	}
	g := generator{src: src, tables: tables}
	g.line("/* Made from docs/abi.md by internal/abigen; do not edit: go test ./internal/abigen -update */")
	for _, step := range []func() error{g.constants, g.kinds, g.regions, g.fieldsOfWords, g.valuesOfWords, g.structs} {
		if err := step(); err != nil {
			return "", err
		}
	}
	return g.out.String(), nil
}

type generator struct {
	src    string
	tables []mdtable.Table
	out    strings.Builder
}

func (g *generator) line(format string, args ...any) { fmt.Fprintf(&g.out, format+"\n", args...) }

func (g *generator) constants() error {
	t, err := table(g.tables, "Constants", "name", "value")
	if err != nil {
		return err
	}
	g.line("\n/* Constants */")
	for _, row := range t.Rows {
		if n, err := strconv.ParseUint(row.Cells[1], 0, 64); err == nil {
			g.line("#define %s UINT64_C(%d)", macro(strings.Trim(row.Cells[0], "`")), n)
		}
	}
	if t, err = table(g.tables, "Chunk words", "class", "size of a block"); err != nil {
		return err
	}
	var sizes []string
	for _, row := range t.Rows {
		n, _, _ := strings.Cut(row.Cells[1], ",")
		sizes = append(sizes, n)
	}
	g.line("#define %s %d", macro("classes"), len(sizes))
	g.line("#define %s { %s }", macro("class sizes"), strings.Join(sizes, ", "))
	return nil
}

var kindLine = regexp.MustCompile("Kind `(....)`, version ([0-9]+)")

func (g *generator) kinds() error {
	g.line("\n/* Kinds of objects, and the version of each kind's layout */")
	for _, t := range g.sections() {
		if m := kindLine.FindStringSubmatch(mdtable.Text(g.src, t)); m != nil {
			k := m[1]
			g.line("#define %s UINT32_C(0x%02x%02x%02x%02x) /* %s */", macro("kind", t), k[3], k[2], k[1], k[0], k)
			g.line("#define %s %s", macro("version", t), m[2])
		}
	}
	return nil
}

// sections are the headings that have a table, in order.
func (g *generator) sections() (names []string) {
	for _, t := range g.tables {
		if len(names) == 0 || names[len(names)-1] != t.Section {
			names = append(names, t.Section)
		}
	}
	return names
}

func (g *generator) regions() error {
	for _, section := range offsets {
		fields, _, err := Fields(g.tables, section)
		if err != nil {
			return err
		}
		g.line("\n/* %s: offsets */", section)
		for _, f := range fields {
			g.line("#define %s %d", macro(f.Name), f.Offset)
		}
	}
	return nil
}

var bitRange = regexp.MustCompile(`^([0-9]+)(?:\.\.([0-9]+))?$`)

func (g *generator) fieldsOfWords() error {
	for _, b := range bits {
		t, err := table(g.tables, b.Section, "bits", "field")
		if err != nil {
			return err
		}
		g.line("\n/* %s: fields of the word */", b.Section)
		for _, row := range t.Rows {
			m := bitRange.FindStringSubmatch(row.Cells[0])
			name := strings.Trim(row.Cells[1], "`")
			if m == nil {
				return fmt.Errorf("line %d: bits %q", row.Line, row.Cells[0])
			}
			if name == "" || name == "reserved" && b.Section != "Chunk words" {
				continue
			}
			low, _ := strconv.Atoi(m[1])
			high := low
			if m[2] != "" {
				high, _ = strconv.Atoi(m[2])
			}
			mask := ^uint64(0) >> (63 - (high - low))
			g.line("#define %s %d", macro(b.Name, name, "shift"), low)
			g.line("#define %s UINT64_C(%#x)", macro(b.Name, name, "mask"), mask<<low)
		}
	}
	return nil
}

func (g *generator) valuesOfWords() error {
	done := map[string]bool{}
	for _, t := range g.tables {
		prefix, ok := values[t.Columns[0]]
		if !ok || done[t.Columns[0]] || len(t.Columns) < 2 || t.Columns[1] != "value" {
			continue
		}
		done[t.Columns[0]] = true
		g.line("\n/* %s */", t.Columns[0])
		for _, row := range t.Rows {
			g.line("#define %s %sU", macro(prefix, strings.Trim(row.Cells[0], "`")), row.Cells[1])
		}
	}
	if len(done) != len(values) {
		return fmt.Errorf("tables of values: there are %v, not all of %v", done, values)
	}
	return nil
}

func (g *generator) structs() error {
	for _, s := range Structs {
		fields, size, err := Fields(g.tables, s.Section)
		if err != nil {
			return err
		}
		g.line("\n/* %s */\nstruct shmsync__%s {", s.Section, s.Name)
		at, pad := 0, 0
		for _, f := range append(fields, Field{"", size, 0}) {
			if f.Offset > at {
				g.line("\tuint8_t reserved%d[%d];", pad, f.Offset-at)
				pad++
			}
			if f.Size > 0 {
				declaration, err := declare(f)
				if err != nil {
					return fmt.Errorf("%s: %w", s.Section, err)
				}
				g.line("\t%s;", declaration)
			}
			at = f.Offset + f.Size
		}
		g.line("};")
		for _, f := range fields {
			g.line("SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__%s, %s) == %d, \"%s.%s\");", s.Name, f.Name, f.Offset, s.Section, f.Name)
		}
		g.line("SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__%s) == %d, \"%s\");", s.Name, size, s.Section)
	}
	return nil
}

func declare(f Field) (string, error) {
	if part, ok := parts[f.Name+" "+strconv.Itoa(f.Size)]; ok {
		return fmt.Sprintf(part, f.Name), nil
	}
	switch f.Size {
	case 4, 8:
		return fmt.Sprintf("uint%d_t %s", f.Size*8, f.Name), nil
	case 16:
		return "struct shmsync__list_words " + f.Name, nil
	}
	return "", fmt.Errorf("field %s has %d bytes", f.Name, f.Size)
}
