package cheader

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/shmsync/shmsync/internal/mdtable"
)

// manDate is the date of the pages: the day of the last change to the texts of this package.
const manDate = "November 29, 2026"

// ManPages makes the manual pages of the C API. The text comes from the comments of the header, from c/examples, and
// from docs. The parameter root is the root of the repository. ManPages returns a map from file names to contents. If
// the page of a function has another name than the function, the file "links" says which page it is.
func ManPages(root string) (map[string]string, error) {
	decls, err := Declarations(filepath.Join(root, "include", "parts"))
	if err != nil {
		return nil, err
	}
	preamble, err := os.ReadFile(filepath.Join(root, "include", "parts", "00-preamble.h"))
	if err != nil {
		return nil, err
	}
	text := Uncomment(strings.Split(string(preamble[:strings.Index(string(preamble), "*/")+2]), "\n"))
	known := errnos(text)
	api, err := os.ReadFile(filepath.Join(root, "docs", "c-api.md"))
	if err != nil {
		return nil, err
	}
	safe, err := handlerCalls(string(api))
	if err != nil {
		return nil, err
	}
	out := make(map[string]string)
	var links []string
	for i := range pages {
		p := &pages[i]
		var own []Decl
		for _, d := range decls {
			if pageOf(&d) == p {
				own = append(own, d)
			}
		}
		example, err := os.ReadFile(filepath.Join(root, "c", "examples", p.name+".c"))
		if err != nil {
			return nil, err
		}
		out["shmsync_"+p.name+".3"] = p.page(own, known, safe, string(example))
		for _, d := range own {
			if d.Kind == Func && d.Name != "shmsync_"+p.name {
				links = append(links, d.Name+" shmsync_"+p.name+"\n")
			}
		}
	}
	slices.Sort(links)
	out["links"] = strings.Join(links, "")
	contract, err := mdtable.ReadFile(filepath.Join(root, "docs", "c-contract.md"))
	if err != nil {
		return nil, err
	}
	out["shmsync.7"] = overview(text, contract)
	return out, nil
}

var errnoLine = regexp.MustCompile(`^    (E[A-Z]+(?:, E[A-Z]+)*)  +(\S.*)$`)

// errnos returns the meaning of each errno value, from the table in the first comment of the header.
func errnos(text string) map[string]string {
	known := make(map[string]string)
	var names []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if m := errnoLine.FindStringSubmatch(line); m != nil {
			names = strings.Split(m[1], ", ")
			for _, n := range names {
				known[n] = strings.TrimSuffix(m[2], ": see below")
			}
		} else if strings.HasPrefix(line, "          ") && names != nil {
			for _, n := range names {
				known[n] += " " + strings.TrimSpace(line)
			}
		} else {
			names = nil
		}
	}
	return known
}

// handlerCalls returns the set of calls that a signal handler may make, from a table in the text of docs/c-api.md.
func handlerCalls(api string) (map[string]bool, error) {
	tables, err := mdtable.Parse(api)
	if err != nil {
		return nil, err
	}
	safe := make(map[string]bool)
	for _, t := range mdtable.With(tables, "object", "calls") {
		for _, row := range t.Rows {
			var object string
			for _, call := range mdtable.Code(row.Cells[1]) {
				if strings.HasPrefix(call, "_") {
					call = object + call
				} else {
					object = call[:strings.LastIndex(call, "_")]
				}
				safe[call] = true
			}
		}
	}
	if len(safe) == 0 {
		return nil, fmt.Errorf("docs/c-api.md has no table of the calls of signal handlers")
	}
	return safe, nil
}

func header(w *strings.Builder, title, section string) {
	fmt.Fprintf(w, ".\\\" Made by: go generate ./internal/cheader. Change the comments of include/parts.\n")
	fmt.Fprintf(w, ".Dd %s\n.Dt %s %s\n.Os\n.Sh NAME\n", manDate, strings.ToUpper(title), section)
}

// page returns the text of one manual page of section 3.
func (p *page) page(own []Decl, known map[string]string, safe map[string]bool, example string) string {
	var w strings.Builder
	var funcs, others []Decl
	for _, d := range own {
		if d.Kind == Func {
			funcs = append(funcs, d)
		} else {
			others = append(others, d)
		}
	}
	header(&w, "shmsync_"+p.name, "3")
	names := []string{"shmsync_" + p.name}
	for _, d := range funcs {
		if d.Name != names[0] {
			names = append(names, d.Name)
		}
	}
	for i, n := range names {
		comma := " ,"
		if i == len(names)-1 {
			comma = ""
		}
		fmt.Fprintf(&w, ".Nm %s%s\n", n, comma)
	}
	fmt.Fprintf(&w, ".Nd %s\n.Sh LIBRARY\nlibshmsync (libshmsync, \\-lshmsync)\n.Sh SYNOPSIS\n.In shmsync.h\n", p.about)
	for _, d := range funcs {
		result, params := d.Parameters()
		fmt.Fprintf(&w, ".Ft %s\n.Fn %s", quoted(result), d.Name)
		if len(params) == 0 {
			w.WriteString(" void")
		}
		for _, a := range params {
			w.WriteString(" " + quoted(a))
		}
		w.WriteString("\n")
	}
	w.WriteString(".Sh DESCRIPTION\n.Bl -tag -width Ds\n")
	for _, d := range funcs {
		_, params := d.Parameters()
		w.WriteString(".It Fn " + d.Name)
		for _, a := range params {
			w.WriteString(" " + nameOf(a))
		}
		w.WriteString("\n")
		prose(&w, d.Comment)
	}
	w.WriteString(".El\n")
	if len(others) > 0 {
		w.WriteString(".Ss Types and constants\n")
	}
	for i := 0; i < len(others); i++ {
		if i > 0 {
			w.WriteString(".Pp\n")
		}
		text := others[i].Text
		if !strings.Contains(text, others[i].Comment) || others[i].Kind == Type {
			prose(&w, others[i].Comment)
		}
		// Write constants that follow each other as one block, if each has a comment only on its own line.
		for ; i < len(others)-1 && others[i+1].Kind == Macro && strings.Contains(others[i+1].Text, others[i+1].Comment); i++ {
			text += "\n" + others[i+1].Text
		}
		literal(&w, text)
	}
	p.signals(&w, own, safe)
	p.results(&w, funcs)
	w.WriteString(".Sh EXAMPLES\n")
	literal(&w, example)
	failures(&w, funcs, known)
	w.WriteString(".Sh SEE ALSO\n")
	see := []string{}
	for _, s := range p.see {
		see = append(see, "shmsync_"+s+" 3")
	}
	slices.Sort(see)
	for _, s := range see {
		fmt.Fprintf(&w, ".Xr %s ,\n", s)
	}
	w.WriteString(".Xr shmsync 7\n")
	return w.String()
}

// signals writes the section about signals and cancellation. It says what docs/c-contract.md promises.
func (p *page) signals(w *strings.Builder, own []Decl, safe map[string]bool) {
	w.WriteString(".Sh SIGNALS AND CANCELLATION\n")
	var calls []string
	runs := false
	for _, d := range own {
		if d.Kind == Func && safe[d.Name] {
			calls = append(calls, d.Name)
		}
		runs = runs || d.Kind == Func && strings.Contains(d.Text, "(*") || d.Kind == Type && strings.Contains(d.Text, ")(")
	}
	if len(calls) == 0 {
		w.WriteString("None of these functions is async-signal-safe:\na signal handler must not call them.\n")
	} else {
		w.WriteString("A signal handler may call these functions, which are async-signal-safe:\n")
		for i, c := range calls {
			end := " ,"
			if i == len(calls)-1 {
				end = " ."
			}
			fmt.Fprintf(w, ".Fn %s%s\n", c, end)
		}
		w.WriteString("It must not call the others.\n")
	}
	w.WriteString("A signal that interrupts a wait runs its handler, and the wait goes on:\n.Er EINTR\nis no result.\n.Pp\n")
	w.WriteString("A cancellation by\n.Xr pthread_cancel 3\nacts after the call, never inside it.\n" +
		"Threads with asynchronous cancellation must not call these functions.\n")
	if runs {
		w.WriteString(".Pp\nA function of the program that a call runs has to return.\nIf an exception or\n.Xr pthread_exit 3\n" +
			"leaves it, the process ends by\n.Dv SIGABRT .\nA\n.Xr longjmp 3\nout of it is a mistake of the program.\n" +
			"It must not close the arena of the call.\n")
	}
}

func (p *page) results(w *strings.Builder, funcs []Decl) {
	values := false
	for _, d := range funcs {
		result, _ := d.Parameters()
		values = values || result != "int" && result != "void"
	}
	w.WriteString(".Sh RETURN VALUES\nFunctions of type\n.Vt int\nreturn 0 or an error number, unless their description says\nwhich values they return.\n" +
		"An error means: not held, not consumed,\nnothing changed unless the description says so.\n" +
		".Va errno\nis not set.\n")
	if p.name != "error" {
		w.WriteString(".Xr shmsync_error 3\nsays in words what failed.\n")
	}
	if values {
		w.WriteString("Other functions return the value that their description names, and 0 or\n.Dv NULL\n" +
			"if the handle or the arena is closed.\n")
	}
}

var errnoName = regexp.MustCompile(`\bE[A-Z]{3,}\b`)
var errnoSentence = regexp.MustCompile(`^(E[A-Z]{3,}(?:, E[A-Z]{3,})*)(?:, ([^:]*))?: (.*)$`)

// failures writes the list of the errno values that the functions return. For each value, it writes the general
// meaning, and then what the comments of individual functions say.
func failures(w *strings.Builder, funcs []Decl, known map[string]string) {
	said := make(map[string]map[string][]string) // errno value → text → functions
	for _, e := range []string{"EBADF", "ENOTCONN", "EPROTO"} {
		said[e] = map[string][]string{}
	}
	for _, d := range funcs {
		for _, e := range errnoName.FindAllString(d.Comment, -1) {
			if said[e] == nil {
				said[e] = make(map[string][]string)
			}
		}
		for _, s := range sentences(strings.Join(strings.Fields(d.Comment), " ")) {
			m := errnoSentence.FindStringSubmatch(s)
			if m == nil {
				continue
			}
			text := m[3]
			if m[2] != "" {
				text = m[2] + ": " + text
			}
			for _, e := range strings.Split(m[1], ", ") {
				said[e][text] = append(said[e][text], d.Name)
			}
		}
	}
	w.WriteString(".Sh ERRORS\n.Bl -tag -width Er\n")
	for _, e := range slices.Sorted(maps.Keys(said)) {
		fmt.Fprintf(w, ".It Bq Er %s\n", e)
		if known[e] != "" {
			text := strings.ToUpper(known[e][:1]) + known[e][1:]
			sentence(w, strings.TrimSuffix(text, ".")+".")
		}
		for _, text := range slices.Sorted(maps.Keys(said[e])) {
			sentence(w, strings.Join(said[e][text], ", ")+": "+text)
		}
	}
	w.WriteString(".El\n")
}
