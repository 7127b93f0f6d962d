//go:build linux

package host

import (
	"maps"
	"slices"
	"strings"
)

// Fact is a property of a host on which figures depend.
type Fact struct{ Name, Text string }

// Facts returns the properties of a host that the headline of a report does not show. It omits those that could not be
// read.
func (e *Environment) Facts() (facts []Fact) {
	revision := e.Revision
	if revision != "" && e.Modified {
		revision += ", modified"
	}
	for _, f := range []Fact{
		{"machine", e.Machine}, {"firmware", e.Firmware}, {"microcode", e.Microcode}, {"turbo", e.Turbo},
		{"frequencies", join(e.Driver, e.Governor)}, {"idle states", e.Idle}, {"clock source", e.Clocksource},
		{"kernel arguments", e.Arguments}, {"mitigations", mapText(e.Mitigations, ": ")},
		{"source", revision}, {"GOAMD64", e.GOAMD64}, {"compiler of peers", e.Compiler}, {"libc of peers", e.Libc},
		{"resource limits", mapText(e.Rlimits, " ")},
	} {
		if f.Text != "" {
			facts = append(facts, f)
		}
	}
	return facts
}

// mapText returns the entries of m as one text, sorted by name, such as "a=x; b=y". The parameter between is the text
// between a name and its value, such as "=".
func mapText(m map[string]string, between string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, name+between+m[name])
	}
	return strings.Join(list, "; ")
}
