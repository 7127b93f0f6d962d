//go:build linux

package cinterop

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/ccache"
)

// Most C programs of testdata share one object file with the functions of the library, because compiling the 30,000
// lines of the header takes longer than most tests. The tests write two forms of the header. In the form for the object
// file, the functions and variables of the implementation have external linkage. The form for the programs only
// declares them, so a program may also call functions that are no part of the API.
//
// Some programs compile the whole header: those that replace a function which the header calls, such as syscall, and
// those with flags that change the layout. The agent also compiles the whole header, as a program of a user would.

// writeSharedHeaders writes both forms of the header in dir.
func writeSharedHeaders(dir string) error {
	whole, err := os.ReadFile(filepath.Join(dir, "shmsync.h"))
	if err != nil {
		return err
	}
	program, library, err := splitHeader(string(whole))
	if err != nil {
		return err
	}
	for form, text := range map[string]string{"program": program, "library": library} {
		if err := os.Mkdir(filepath.Join(dir, form), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, form, "shmsync.h"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

var (
	implementation = regexp.MustCompile(`(?m)^#define SHMI_FN static .*$`)
	linkages       = regexp.MustCompile(`(?m)^#define (SHMI_FN|SHMI_SELDOM|SHMI_COLD) static (.*)$`)
	ownCrash       = "#define SHMSYNC_CRASHPOINT(name) shmi_crash(name)\n"
	variable       = regexp.MustCompile(`^static ([^(/=;]*?)( = .*|;.*)$`)
	withAttributes = regexp.MustCompile(`^(__attribute__\(\(.*\)\)) static (.*)$`)
	// Declarations begin at the margin. The definition of a type is copied line by line, like any other text.
	beginsDeclaration = regexp.MustCompile(`^\w`)
	isType            = regexp.MustCompile(`^(typedef|enum|struct [^()]*|union) .*\{`)
	oneLine           = regexp.MustCompile(`^(\w.*\)) \{ .*\}( /\*.*\*/)?$`)
)

// splitHeader returns the two forms of the header. Each line has the same line number in both forms and in the header,
// except after the crash points.
func splitHeader(whole string) (program, library string, err error) {
	at := implementation.FindStringIndex(whole)
	if at == nil || strings.Count(whole, ownCrash) != 1 {
		return "", "", fmt.Errorf("the header no longer has the lines that begin the implementation")
	}
	// A program may have a function at_point of its own for the crash points.
	points := "#define SHMSYNC_CRASHPOINT(name) at_point(name)\n" +
		"__attribute__((weak)) void at_point(const char *name) { shmi_crash(name); }\n"
	whole = linkages.ReplaceAllString(whole, "#define $1 $2")
	var programs, libraries strings.Builder
	programs.WriteString(whole[:at[0]])
	libraries.WriteString(whole[:at[0]])
	lines := strings.Split(whole[at[0]:], "\n")
	for i := 0; i < len(lines); {
		n, declared := declaration(lines[i:])
		for _, line := range lines[i : i+n] {
			if v := variable.FindStringSubmatch(line); v != nil {
				line = v[1] + v[2]
			} else if a := withAttributes.FindStringSubmatch(line); a != nil {
				line = a[1] + " " + a[2]
			}
			libraries.WriteString(line + "\n")
		}
		programs.WriteString(declared + strings.Repeat("\n", n-strings.Count(declared, "\n")))
		i += n
	}
	return programs.String(), strings.Replace(libraries.String(), ownCrash, points, 1), nil
}

// declaration returns how many lines the declaration or definition at the start of lines takes, and what the form for
// programs has in their place. If no declaration begins there, it returns 1 and the first line.
func declaration(lines []string) (n int, declared string) {
	first := lines[0]
	through := func(ends func(line string) bool) int { return slices.IndexFunc(lines, ends) + 1 }
	switch {
	case !beginsDeclaration.MatchString(first) || isType.MatchString(first):
		return 1, first
	case strings.HasPrefix(first, "SHMI_RECOVER_"): // defines a function
		return 1, ""
	case variable.MatchString(first):
		n = 1
		if strings.HasSuffix(first, "{") {
			n = through(func(line string) bool { return strings.HasSuffix(line, "};") })
		}
		return n, "extern " + variable.FindStringSubmatch(first)[1] + ";"
	}
	here := strings.HasPrefix(first, "SHMI_FAST") || strings.HasPrefix(first, "static inline")
	if one := oneLine.FindStringSubmatch(first); one != nil {
		if here {
			return 1, first
		}
		return 1, prototype(one[1])
	}
	// The lines of a function: its head, whose further lines are indented, and its body.
	for n = 1; n < len(lines) && strings.HasPrefix(lines[n], " "); n++ {
	}
	if n == len(lines) || lines[n] != "{" || strings.HasSuffix(lines[n-1], ";") {
		return 1, first
	}
	head := strings.Join(lines[:n], "\n")
	n = through(func(line string) bool { return line == "}" })
	if here {
		return n, strings.Join(lines[:n], "\n")
	}
	return n, prototype(head)
}

// prototype returns a declaration of the function with this head.
func prototype(head string) string {
	if strings.HasPrefix(head, "__attribute__((constructor") {
		return ""
	}
	if a := withAttributes.FindStringSubmatch(head); a != nil {
		head = a[1] + " " + a[2]
	}
	if code, comment, ok := strings.Cut(head, " /*"); ok && strings.HasSuffix(comment, "*/") {
		return code + "; /*" + comment
	}
	return head + ";"
}

// replaces matches a macro that a program defines before it includes the header.
var replaces = regexp.MustCompile(`(?m)^#define (\w+)`)

// shares reports whether the program can share an object file that has these flags.
func shares(t testing.TB, source string, flags []string) bool {
	t.Helper()
	for _, f := range flags {
		if !strings.HasPrefix(f, "-DSHMI_") && f != "-DSHMSYNC_IMPLEMENTATION" && !strings.HasPrefix(f, "-O") {
			return false
		}
	}
	text, err := os.ReadFile(filepath.Join("testdata", source))
	require.NoError(t, err)
	before, _, includes := strings.Cut(string(text), `#include "shmsync.h"`)
	for _, m := range replaces.FindAllStringSubmatch(before, -1) {
		if !slices.Contains([]string{"_GNU_SOURCE", "SHMSYNC_IMPLEMENTATION", "SHMSYNC_CRASHPOINT"}, m[1]) {
			return false
		}
	}
	return includes
}

// objects holds the object files that have been built, by compiler and flags.
var objects struct {
	sync.Mutex
	paths map[string]string
}

// sharedObject builds an object file of the library, once for each set of flags, and returns its path.
func sharedObject(t testing.TB, cc string, flags []string) string {
	t.Helper()
	flags = slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return f == "-DSHMSYNC_IMPLEMENTATION" })
	key := cc + " " + strings.Join(flags, " ")
	objects.Lock()
	defer objects.Unlock()
	if objects.paths[key] == "" {
		output := filepath.Join(built.dir, "library", fmt.Sprintf("library-%d.o", len(objects.paths)))
		args := slices.Concat(compilerFlags("library", flags...), []string{"-c", filepath.Join("testdata", "implementation.c")})
		path, err := ccache.CompileWith(cc, args, nil, output)
		require.NoError(t, err)
		if objects.paths == nil {
			objects.paths = map[string]string{}
		}
		objects.paths[key] = path
	}
	return objects.paths[key]
}
