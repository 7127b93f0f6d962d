package cheader

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/shmsync/shmsync/internal/mdtable"
)

// quoted returns s as an argument of an mdoc macro, with quotes.
func quoted(s string) string {
	return `"` + strings.ReplaceAll(escaped(s), `"`, `\(dq`) + `"`
}

func escaped(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\e`), "~", `\(ti`)
}

// sentence writes a sentence of a manual page, and breaks long lines.
func sentence(w *strings.Builder, s string) {
	short := ""
	for _, word := range strings.Fields(s) {
		if short != "" && len(short)+1+len(word) > 76 {
			line(w, short)
			short = ""
		}
		short = strings.TrimSpace(short + " " + word)
	}
	line(w, short)
}

// line writes one line.
func line(w *strings.Builder, s string) {
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	w.WriteString(escaped(s) + "\n")
}

var sentenceEnd = regexp.MustCompile(`[.!?][)"]? +`)

// sentences splits a paragraph into sentences. Each sentence of a manual page must end at the end of a source line,
// because the formatter recognizes it there.
func sentences(text string) (all []string) {
	from := 0
	for _, m := range sentenceEnd.FindAllStringIndex(text, -1) {
		all = append(all, strings.TrimSpace(text[from:m[1]]))
		from = m[1]
	}
	if rest := strings.TrimSpace(text[from:]); rest != "" {
		all = append(all, rest)
	}
	return all
}

var heading = regexp.MustCompile(`^-+ (.*?) -+$`)

// prose writes a comment of the header as text of a manual page. The formatter fills paragraphs, but not lines that are
// indented by four blanks.
func prose(w *strings.Builder, comment string) {
	for i, block := range strings.Split(comment, "\n\n") {
		if strings.HasPrefix(block, "    ") {
			literal(w, block)
			continue
		}
		if i > 0 {
			w.WriteString(".Pp\n")
		}
		for _, s := range sentences(strings.Join(strings.Fields(heading.ReplaceAllString(block, "$1")), " ")) {
			sentence(w, s)
		}
	}
}

// literal writes text that the formatter must not fill, without its common indentation.
func literal(w *strings.Builder, text string) {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	common := -1
	for _, l := range lines {
		if n := len(l) - len(strings.TrimLeft(l, " ")); l != "" && (common < 0 || n < common) {
			common = n
		}
	}
	w.WriteString(".Bd -literal\n")
	for _, l := range lines {
		if l != "" {
			l = l[common:]
		}
		line(w, l)
	}
	w.WriteString(".Ed\n")
}

var (
	markdownLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	sectionTitle = regexp.MustCompile(`^([A-Z][A-Z ]+)\. `)
)

// overview returns shmsync(7): the first comment of the header, the list of pages, and the promises of
// docs/c-contract.md.
func overview(preamble string, contract []mdtable.Table) string {
	var w strings.Builder
	header(&w, "shmsync", "7")
	w.WriteString(".Nm shmsync\n.Nd locks and other primitives that processes share\n.Sh DESCRIPTION\n")
	_, body, _ := strings.Cut(preamble, "\n\n")
	first := true
	for _, block := range strings.Split(body, "\n\n") {
		if strings.HasPrefix(block, "    ") {
			literal(&w, block)
			continue
		}
		if m := sectionTitle.FindStringSubmatch(block); m != nil {
			fmt.Fprintf(&w, ".Ss %s\n", m[1][:1]+strings.ToLower(m[1][1:]))
			block = strings.TrimPrefix(block, m[0])
		} else if !first {
			w.WriteString(".Pp\n")
		}
		first = false
		prose(&w, block)
	}
	w.WriteString(".Ss Pages\n.Bl -tag -width shmsync_synchronized\n")
	for _, p := range pages {
		fmt.Fprintf(&w, ".It Xr shmsync_%s 3\n%s\n", p.name, p.about)
	}
	w.WriteString(".El\n.Sh CONTRACT\n")
	for _, t := range mdtable.With(contract, "promise") {
		fmt.Fprintf(&w, ".Ss %s\n.Bl -bullet\n", t.Section)
		for _, row := range t.Rows {
			w.WriteString(".It\n")
			text := strings.ReplaceAll(markdownLink.ReplaceAllString(row.Cells[0], "$1"), "`", "")
			for _, s := range sentences(text + ".") {
				sentence(&w, s)
			}
		}
		w.WriteString(".El\n")
	}
	w.WriteString(".Sh FILES\n.Bl -tag -width Ds\n.It Pa /dev/shm/NAME\nThe arena of that name.\n.El\n.Sh SEE ALSO\n")
	var see []string
	for _, p := range pages {
		see = append(see, "shmsync_"+p.name)
	}
	slices.Sort(see)
	w.WriteString(".Xr " + strings.Join(see, " 3 ,\n.Xr ") + " 3\n")
	return w.String()
}
