//go:build linux

package report

import (
	"strings"
	"sync"

	"github.com/shmsync/shmsync/internal/bench/subjects"
)

// style is the look of a subject in all bars and lines of a page.
type style struct{ color, dashes string }

// family has the subjects that come from the same place, such as the library or C. Their colours are shades of one hue,
// so that a reader can tell the library from other primitives at a glance.
type family struct {
	prefix, Name string
	shades       []string // visible on white and on black
}

var families = []family{
	{"shmsync:", "the library", []string{"#0072b2", "#4a9be8", "#00a5a5", "#5b7fd6", "#2f8fc4", "#6aa6ff"}},
	{"c:", "peers in C", []string{"#d55e00", "#e69f00", "#c0392b", "#b8860b", "#e8743b", "#ad6b3f"}},
	{"go:", "peers in Go", []string{"#009e73", "#5aa02c", "#2e8b57", "#7cb342", "#00a878", "#6b8e23"}},
	{"in-process:", "within one process", []string{"#cc79a7", "#9b6fc4", "#b0569f", "#8e7cc3", "#d16ba5", "#a05fa0"}},
}

// dashes are the kinds of line. A page uses them to tell apart subjects of a family that have the same shade.
var dashes = []string{"", "5 3", "2 3", "8 3 2 3", "12 4", "1 4", "8 3 2 3 2 3", "12 3 5 3", "16 2", "3 6", "20 3 2 3", "6 6"}

// styles maps the name of each subject to its colour and kind of line. The styles do not depend on a document: a
// subject looks the same on each page.
var styles = sync.OnceValue(func() map[string]style {
	all, seen := map[string]style{}, map[string]int{}
	for _, s := range subjects.All {
		name := s.Name()
		if _, ok := all[name]; ok || s.Hidden {
			continue
		}
		for _, f := range families {
			if strings.HasPrefix(name, f.prefix) {
				i := seen[f.prefix]
				all[name] = style{f.shades[i%len(f.shades)], dashes[i/len(f.shades)%len(dashes)]}
				seen[f.prefix]++
			}
		}
	}
	return all
})

// styleOf returns the style of the subject whose name is the first word of the parameter name, or the zero style if
// there is no such subject.
func styleOf(name string) style {
	subject, _, _ := strings.Cut(name, " ")
	return styles()[subject]
}

// Color returns the first shade of the family.
func (f family) Color() string { return f.shades[0] }
