package proctest

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The environment variables that Start sets to make a process a helper.
const (
	envHelper = "SHMSYNC_PROCTEST"
	envParams = "SHMSYNC_PROCTEST_PARAMS"
	envFiles  = "SHMSYNC_PROCTEST_FILES"
)

var registry struct {
	sync.Mutex
	helpers map[string]func(*Child)
	used    map[string]bool
	main    bool // Main has been called
}

// Register registers f as a helper, a function that runs in a process of its own; see [Start]. It panics if the
// name is taken.
func Register(name string, f func(*Child)) {
	registry.Lock()
	defer registry.Unlock()
	if name == "" {
		panic("proctest: helper without a name")
	}
	if _, dup := registry.helpers[name]; dup {
		panic(fmt.Sprintf("proctest: duplicate registration of helper %q", name))
	}
	if registry.helpers == nil {
		registry.helpers = make(map[string]func(*Child))
		registry.used = make(map[string]bool)
	}
	registry.helpers[name] = f
}

// Main is the body of TestMain. It runs a helper if this process was started as one, and otherwise
// the tests. It does not return.
//
// If no test has started a registered helper, a run of all tests fails. Runs in which a flag leaves
// out tests (-run, -skip, -list, -short, -fuzz) are exempt. A test that skips itself calls [Skip],
// and a test of which only a part runs calls [LeaveOut].
func Main(m *testing.M) {
	registry.Lock()
	registry.main = true
	registry.Unlock()
	flag.Parse()
	tests = m
	if name := os.Getenv(envHelper); name != "" {
		runHelper(name)
	}
	code := m.Run()
	if unused := unusedHelpers(); code == 0 && allTests() && len(unused) > 0 {
		fmt.Fprintf(os.Stderr, "proctest: helpers that no test starts: %s\n", strings.Join(unused, ", "))
		code = 1
	}
	os.Exit(code)
}

// Skip skips the test, and counts the given helpers, which the test would have started, as used; see [Main].
func Skip(t testing.TB, reason string, helpers ...string) {
	t.Helper()
	LeaveOut(t, helpers...)
	t.Skip(reason)
}

// LeaveOut counts helpers as used, see [Main]. A test calls it for helpers that it may not start because it runs only a
// part of its cases: the part that the user asked for with an environment variable, or a [Sample].
func LeaveOut(t testing.TB, helpers ...string) {
	t.Helper()
	for _, name := range helpers {
		if _, err := lookup(name); err != nil {
			t.Fatal(err)
		}
	}
}

// lookup finds the helper of that name and marks it as used.
func lookup(name string) (func(*Child), error) {
	registry.Lock()
	defer registry.Unlock()
	f, ok := registry.helpers[name]
	if !ok {
		return nil, fmt.Errorf("proctest: no helper is registered as %q", name)
	}
	registry.used[name] = true
	return f, nil
}

func unusedHelpers() []string {
	registry.Lock()
	defer registry.Unlock()
	var unused []string
	for name := range registry.helpers {
		if !registry.used[name] {
			unused = append(unused, name)
		}
	}
	slices.Sort(unused)
	return unused
}

// allTests reports whether no flag restricts which tests run, or how much of each test runs.
func allTests() bool {
	for flagName, unrestricted := range map[string]string{
		"test.run":        "",
		"test.skip":       "",
		"test.list":       "",
		"test.fuzz":       "",
		"test.fuzzworker": "false",
		"test.short":      "false",
	} {
		if f := flag.Lookup(flagName); f != nil && f.Value.String() != unrestricted {
			return false
		}
	}
	f := flag.Lookup("test.count")
	return f == nil || f.Value.String() != "0"
}

func mainCalled() bool {
	registry.Lock()
	defer registry.Unlock()
	return registry.main
}
