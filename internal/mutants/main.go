// Command mutants puts known mistakes into the library, one at a time, and checks that a test finds each mistake.
//
//	go run ./internal/mutants [-run regexp] [-list] [-v]
//
// A mutant is an edit of one file. The command edits a copy of the file, and builds with the copy through the overlay
// of the go command, so the tree stays as it is. If the file is a part of the C header, the tests read the copy when they
// compile their C programs. Each mutant has one test, which is the fastest that is known to find the mistake.
// docs/testing/mutants.md lists the mutants with their tests. The command fails if the test of a mutant passes, if an
// edit no longer applies, or if the edited library does not build.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A mutant is an edit of one source file that puts a known mistake into the library.
type mutant struct {
	name string
	file string // path from the root of the module
	old  string // the text to replace, which occurs once in the file
	new  string
	pkg  string // the package of the test
	run  string // the pattern of the test, as for go test -run
	tags string
	env  []string
	// count is the largest number of times that the test is run. The value 0 means once.
	count int
}

// limit is how long a test may take. A test that takes longer counts as a failure, and so finds the mistake.
const limit = 90 * time.Second

func main() {
	only := flag.String("run", "", "regular expression of the mutants to test")
	list := flag.Bool("list", false, "print the table of docs/testing/mutants.md, and do nothing")
	verbose := flag.Bool("v", false, "show what the tests say")
	flag.Parse()
	re, err := regexp.Compile(*only)
	if err != nil {
		fatal(err)
	}
	root, err := moduleRoot()
	if err != nil {
		fatal(err)
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		fatal(err)
	}
	defer os.RemoveAll(dir)
	b := &bench{root: root, dir: dir, sound: map[string]error{}}
	survived := 0
	for _, m := range mutants {
		if !re.MatchString(m.name) {
			continue
		}
		if *list {
			fmt.Println(m.row())
			continue
		}
		start := time.Now()
		out, err := b.test(&m)
		verdict := "found by " + m.run
		if err != nil {
			verdict = "SURVIVES: " + err.Error()
			survived++
		}
		fmt.Printf("%-30s %s (%v)\n", m.name, verdict, time.Since(start).Round(time.Second))
		if *verbose || err != nil {
			fmt.Println(indent(out))
		}
	}
	if survived > 0 {
		os.RemoveAll(dir)
		fatal(fmt.Errorf("%d mutants survive", survived))
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "mutants:", err)
	os.Exit(1)
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// row returns the line for the mutant in the table of docs/testing/mutants.md.
func (m *mutant) row() string {
	return fmt.Sprintf("| %s | `%s` | `%s` |", m.name, m.file, strings.ReplaceAll(m.run, "|", "\\|"))
}

// apply returns the source with the edit of the mutant.
func (m *mutant) apply(source string) (string, error) {
	switch n := strings.Count(source, m.old); {
	case n != 1:
		return "", fmt.Errorf("%s: the text to replace is there %d times, want once:\n%s", m.file, n, m.old)
	case m.old == m.new:
		return "", errors.New("the edit changes nothing")
	}
	return strings.Replace(source, m.old, m.new, 1), nil
}

// bench builds and runs the tests of the mutants.
type bench struct {
	root, dir string
	sound     map[string]error // results of tests without a mutant, by binary and test
}

// build builds the test of m. If overlay is not empty, it names a file that replaces a source file by the edited one.
func (b *bench) build(m *mutant, overlay, binary string) error {
	args := []string{"test", "-c", "-tags", m.tags, "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	build := exec.Command("go", append(args, "./"+m.pkg)...)
	build.Dir = b.root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("it does not build: %w\n%s", err, out)
	}
	return nil
}

// run runs the test of m, and returns an error if it fails.
func (b *bench) run(m *mutant, binary string, env ...string) (output string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit+10*time.Second)
	defer cancel()
	test := exec.CommandContext(ctx, binary, "-test.run", m.run, "-test.timeout", limit.String())
	test.Dir = filepath.Join(b.root, m.pkg)
	// A shorter limit makes a test that hangs fail sooner.
	test.Env = slices.Concat(os.Environ(), []string{"SHMSYNC_TEST_TIMEOUT_SCALE=0.5"}, m.env, env)
	test.WaitDelay = 5 * time.Second
	out, err := test.CombinedOutput()
	return string(out), err
}

// passes returns an error unless the test of m passes without the mistake.
func (b *bench) passes(m *mutant) error {
	binary := b.soundBinary(m)
	if _, err := os.Stat(binary); err != nil {
		if err := b.build(m, "", binary); err != nil {
			return err
		}
	}
	key := binary + m.run + strings.Join(m.env, " ")
	err, known := b.sound[key]
	if !known {
		var out string
		if out, err = b.run(m, binary); err != nil {
			err = fmt.Errorf("%s fails without it: %w\n%s", m.run, err, indent(out))
		} else if strings.Contains(out, "no tests to run") {
			err = fmt.Errorf("there is no %s", m.run)
		}
		b.sound[key] = err
	}
	return err
}

// test returns an error unless the test of m passes without the mistake and fails with it.
func (b *bench) test(m *mutant) (output string, err error) {
	path := filepath.Join(b.root, m.file)
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	changed, err := m.apply(string(source))
	if err != nil {
		return "", err
	}
	if err := b.passes(m); err != nil {
		return "", err
	}
	if filepath.Ext(m.file) == ".h" {
		edited := filepath.Join(b.dir, "edited.h")
		if err := os.WriteFile(edited, []byte(changed), 0o600); err != nil {
			return "", err
		}
		return b.finds(m, b.soundBinary(m), "SHMSYNC_CINTEROP_PART="+filepath.Base(m.file)+"="+edited)
	}
	edited, overlay, binary := filepath.Join(b.dir, "edited.go"), filepath.Join(b.dir, "overlay.json"), filepath.Join(b.dir, "mutant.test")
	if err := os.WriteFile(edited, []byte(changed), 0o600); err != nil {
		return "", err
	}
	j, err := json.Marshal(map[string]map[string]string{"Replace": {path: edited}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, j, 0o600); err != nil {
		return "", err
	}
	if err := b.build(m, overlay, binary); err != nil {
		return "", err
	}
	return b.finds(m, binary)
}

// finds returns an error unless the test of m fails.
func (b *bench) finds(m *mutant, binary string, env ...string) (output string, err error) {
	for range max(m.count, 1) {
		if output, err = b.run(m, binary, env...); err != nil {
			if notCompiled.MatchString(output) {
				return output, errors.New("the C programs do not compile")
			}
			return output, nil
		}
	}
	return output, errors.New(m.run + " passes")
}

// notCompiled matches the message of a C compiler about an error in the header.
var notCompiled = regexp.MustCompile(`shmsync\.h:\d+:\d+: error: `)

// soundBinary returns the path of the test binary without a mistake.
func (b *bench) soundBinary(m *mutant) string {
	return filepath.Join(b.dir, strings.ReplaceAll(m.pkg, "/", "-")+m.tags+".test")
}

func indent(s string) string { return "\t" + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n\t") }
