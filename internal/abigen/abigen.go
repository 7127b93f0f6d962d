// Package abigen generates the C side of the layout from docs/abi.md: the structs of the objects, and the bits
// and values of their words. The offsets, sizes and constants of the arena are written by hand in the C header;
// abigen generates a program that asserts them. The tests of internal/arenakernel and prims whose names
// begin with TestABI compare the same tables with the Go side. So the document is the one source of both.
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

// Struct is a struct of the C header, and the section of the document that describes it.
type Struct struct {
	Section string
	Name    string // without the prefix
}

// Structs are the structs that Part declares. A struct comes after the structs that it contains. The structs of a
// Waitable are left out, because C has no Waitable.
var Structs = []Struct{
	{"Semaphore", "semaphore_words"},
	{"Share of a semaphore", "semaphore_share"},
	{"Slot record of a Semaphore", "semaphore_record"},
	{"Cell of a Sequencer", "token_cell_words"},
	{"Sequencer", "sequencer_words"},
	{"An eventcount", "eventcount_words"},
	{"Event", "event_words"},
	{"Auto-reset Event", "auto_event_words"},
	{"Share of an auto-reset Event", "event_record"},
	{"Side of a queue", "queue_side_words"},
	{"Queue", "queue_words"},
	{"Cond", "cond_words"},
	{"Future", "future_words"},
	{"Synchronized", "synchronized_words"},
	{"WaitGroup", "counter_words"},
	{"Slot record of a WaitGroup or a Latch", "counter_slot"},
	{"Barrier", "barrier_words"},
	{"Slot record of a Barrier", "barrier_slot"},
	{"Once", "once_words"},
	{"FairMutex", "fairmutex_words"},
	{"Slot record of a FairMutex", "fairmutex_record"},
	{"MultiLock", "multilock_head"},
	{"Entry of a key", "multilock_entry"},
	{"Bucket of keys", "multilock_bucket"},
	{"Block of keys", "multilock_block"},
	{"RWMutex", "rwmutex_words"},
	{"Slot record of an RWMutex", "rwmutex_record"},
	{"SpinLock", "spin_words"},
	{"Slot record of an RWSpinLock", "rwspin_record"},
	{"SignalWaker", "signal_words"},
	{"Signal line", "signal_line"},
	{"Gate", "signal_gate"},
	{"Participant row", "signal_row"},
}

// handWritten are the structs that the C header declares by hand.
var handWritten = []Struct{
	{"Wait node", "node"},
	{"Mutex", "mutex_words"},
	{"Futex", "futex_words"},
}

// parts has the C declarations of fields that are structs or arrays. A key is the name and the size of a field.
var parts = map[string]string{
	"entry0 48":    "shmi_multilock_entry %s",
	"entry1 48":    "shmi_multilock_entry %s",
	"entry2 48":    "shmi_multilock_entry %s",
	"entries 192":  "shmi_multilock_entry %s[4]",
	"items 24":     "shmi_queue_side_words %s",
	"room 24":      "shmi_queue_side_words %s",
	"mutex 64":     "uint32_t %s[16]",
	"share 64":     "shmi_semaphore_share %s",
	"lock 192":     "shmi_mutex_words %s",
	"entries 128":  "uint64_t %s[16]",
	"breaks 256":   "uint64_t %s[32]",
	"entries 136":  "uint64_t %s[17]",
	"stats 112":    "uint64_t %s[14]",
	"entries 56":   "uint64_t %s[7]",
	"counts 64":    "uint64_t %s[8]",
	"returning 32": "uint64_t %s[4]",
	"count 128":    "shmi_eventcount_words %s",
	"results 256":  "uint64_t %s[32]",
	"cells 256":    "shmi_token_cell_words %s[16]",
}

// offsets has the sections of the document for regions of memory that C accesses by offsets instead of structs.
var offsets = []string{"Header", "Slot", "Death record", "Object header", "Slot record"}

// bits are the sections of the document that describe bits, each with the prefix that the names of its bits have in C.
var bits = []Struct{
	{"RWMutex gate", "GATE"},
	{"Reader word", "READER"},
	{"SpinLock", "SPIN"},
	{"Cell of a Sequencer", "TOKEN_CELL"},
	{"Event", "EVENT"},
	{"Auto-reset Event", "AUTO_EVENT"},
	{"Future", "FUTURE"},
	{"Result of a Future", "FUTURE_RESULT"},
	{"SignalWaker", "SIGNAL"},
	{"Signal status", "SIGNAL_STATUS"},
	{"Gate", "SIGNAL_GATE"},
	{"Participant row", "SIGNAL_ROW"},
}

// values are the tables of the document that describe values. The field column is the heading of the first column of
// the table. The field prefix is the prefix that the names of these values have in C.
var values = []struct {
	column, prefix string
	hand           bool // declared by hand in the C header, as enumerators named prefixName
}{
	{"kind of gate", "GATE", false},
	{"kind of state word", "SPIN", false},
	{"capability", "", true},
	{"phase", "phase", true},
	{"kind of chunk", "chunk", true},
	{"kind of block", "block", true},
	{"phase of an object", "object", true},
	{"state of a node", "Node", true},
}

// upper returns a name in the style of a macro: lastCPU becomes LAST_CPU.
func upper(words ...string) string {
	var b strings.Builder
	b.WriteString("SHMI")
	for _, w := range words {
		before := '_'
		b.WriteByte('_')
		for _, r := range w {
			switch {
			case r == ' ' || r == '-':
				r = '_'
			case unicode.IsUpper(r) && unicode.IsLower(before):
				b.WriteByte('_')
			}
			before = r
			b.WriteRune(unicode.ToUpper(r))
		}
	}
	return b.String()
}

// camel returns the name of an enumerator. For example, the prefix chunk and the name free give SHMI_chunkFree.
func camel(prefix, name string) string {
	if prefix == "" {
		return "SHMI_" + name
	}
	return "SHMI_" + prefix + strings.ToUpper(name[:1]) + name[1:]
}

// Field is a field of a struct.
type Field struct {
	Name         string
	Offset, Size int
}

// Fields returns the fields in the table of a section of the document, and the size of the struct. It omits fields that
// are reserved.
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
			fields = append(fields, Field{name, offset, length})
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

// Part returns the generated part of the C header, which declares the objects.
func Part(src string) (string, error) {
	return generate(src, (*generator).kinds, (*generator).fieldsOfWords, (*generator).values, (*generator).structs)
}

// Assertions returns a C program that includes the header. The program compiles only if the header agrees with
// the document.
func Assertions(src string) (string, error) {
	return generate(src, (*generator).begin, (*generator).constants, (*generator).offsets, (*generator).assertValues, (*generator).assertStructs)
}

func generate(src string, steps ...func(*generator) error) (string, error) {
	tables, err := mdtable.Parse(src)
	if err != nil {
		return "", err
	}
	g := &generator{src: src, tables: tables}
	g.line("/* Made from docs/abi.md by internal/abigen; do not edit: go test ./internal/abigen -update */")
	for _, step := range steps {
		if err := step(g); err != nil {
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

func (g *generator) assert(cond string) { g.line("SHMI_ASSERT(%s, \"docs/abi.md\");", cond) }

func (g *generator) begin() error {
	g.line("#define SHMSYNC_IMPLEMENTATION\n#include \"shmsync.h\"\nint class_sizes(void);\nint main(void) { return class_sizes(); }")
	return nil
}

func (g *generator) constants() error {
	t, err := table(g.tables, "Constants", "name", "value")
	if err != nil {
		return err
	}
	for _, row := range t.Rows {
		if n, err := strconv.ParseUint(row.Cells[1], 0, 64); err == nil {
			g.assert(fmt.Sprintf("SHMI_%s == %dULL", strings.Trim(row.Cells[0], "`"), n))
		}
	}
	if t, err = table(g.tables, "Chunk words", "class", "size of a block"); err != nil {
		return err
	}
	g.line("static const uint32_t sizes[SHMI_classes] = {")
	for _, row := range t.Rows {
		n, _, _ := strings.Cut(row.Cells[1], ",")
		g.line("    %s,", n)
	}
	g.line("};\nint class_sizes(void) { return memcmp(sizes, shmi_class_size, sizeof sizes); }")
	g.assert(fmt.Sprintf("SHMI_classes == %d", len(t.Rows)))
	return nil
}

var kindLine = regexp.MustCompile("Kind `(....)`, version ([0-9]+)")

func (g *generator) kinds() error {
	g.line("\n/* Kinds of objects, and the version of each kind's layout */")
	last := ""
	for _, t := range g.tables {
		m := kindLine.FindStringSubmatch(mdtable.Text(g.src, t.Section))
		if m == nil || t.Section == last {
			continue
		}
		last = t.Section
		k := m[1]
		g.line("#define %s UINT32_C(0x%02x%02x%02x%02x) /* %s */", upper("KIND", t.Section), k[3], k[2], k[1], k[0], k)
		g.line("#define %s %s", upper("VERSION", t.Section), m[2])
	}
	return nil
}

func (g *generator) offsets() error {
	for _, section := range offsets {
		fields, _, err := Fields(g.tables, section)
		if err != nil {
			return err
		}
		for _, f := range fields {
			g.assert(fmt.Sprintf("SHMI_%s == %d", f.Name, f.Offset))
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
			if name == "" || name == "reserved" {
				continue
			}
			low, _ := strconv.Atoi(m[1])
			high := low
			if m[2] != "" {
				high, _ = strconv.Atoi(m[2])
			}
			mask := ^uint64(0) >> (63 - (high - low))
			g.line("#define %s %d", upper(b.Name, name, "SHIFT"), low)
			g.line("#define %s UINT64_C(%#x)", upper(b.Name, name, "MASK"), mask<<low)
		}
	}
	return nil
}

// eachValue calls f for each row of some tables of values. If hand is true, it uses the tables whose constants the
// header declares by hand. If hand is false, it uses the tables whose constants are generated.
func (g *generator) eachValue(hand bool, f func(column, prefix, name, value string)) error {
	for _, v := range values {
		if v.hand != hand {
			continue
		}
		found := false
		for _, t := range g.tables {
			if found || len(t.Columns) < 2 || t.Columns[0] != v.column || t.Columns[1] != "value" {
				continue
			}
			found = true
			for _, row := range t.Rows {
				f(v.column, v.prefix, strings.Trim(row.Cells[0], "`"), row.Cells[1])
			}
		}
		if !found {
			return fmt.Errorf("no table of values with the column %q", v.column)
		}
	}
	return nil
}

func (g *generator) values() error {
	last := ""
	return g.eachValue(false, func(column, prefix, name, value string) {
		if column != last {
			last = column
			g.line("\n/* %s */", column)
		}
		g.line("#define %s %sU", upper(prefix, name), value)
	})
}

func (g *generator) assertValues() error {
	return g.eachValue(true, func(_, prefix, name, value string) { g.assert(camel(prefix, name) + " == " + value) })
}

func (g *generator) structs() error {
	for _, s := range Structs {
		fields, size, err := Fields(g.tables, s.Section)
		if err != nil {
			return err
		}
		g.line("\n/* %s */\ntypedef struct shmi_%s {", s.Section, s.Name)
		at, pad := 0, 0
		for _, f := range append(fields, Field{"", size, 0}) {
			if f.Offset > at {
				g.line("    uint8_t pad%d_[%d];", pad, f.Offset-at)
				pad++
			}
			if f.Size > 0 {
				declaration, err := declare(f)
				if err != nil {
					return fmt.Errorf("%s: %w", s.Section, err)
				}
				g.line("    %s;", declaration)
			}
			at = f.Offset + f.Size
		}
		g.line("} shmi_%s;", s.Name)
		g.assertStruct(s.Name, fields, size)
	}
	return nil
}

func (g *generator) assertStruct(name string, fields []Field, size int) {
	for _, f := range fields {
		g.line("SHMI_ASSERT(offsetof(shmi_%s, %s) == %d, \"%s.%s\");", name, f.Name, f.Offset, name, f.Name)
	}
	g.line("SHMI_ASSERT(sizeof(shmi_%s) == %d, \"%s\");", name, size, name)
}

func (g *generator) assertStructs() error {
	for _, s := range handWritten {
		fields, size, err := Fields(g.tables, s.Section)
		if err != nil {
			return err
		}
		for i := range fields {
			if s.Name == "node" && fields[i].Name == "readyNext" {
				fields[i].Name = "ready_next"
			}
		}
		g.assertStruct(s.Name, fields, size)
	}
	return nil
}

func declare(f Field) (string, error) {
	if part, ok := parts[f.Name+" "+strconv.Itoa(f.Size)]; ok {
		return fmt.Sprintf(part, f.Name), nil
	}
	if f.Size == 4 || f.Size == 8 {
		return fmt.Sprintf("uint%d_t %s", f.Size*8, f.Name), nil
	}
	return "", fmt.Errorf("field %s has %d bytes", f.Name, f.Size)
}
