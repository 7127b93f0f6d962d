package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// columns has the names of the columns of the table to which each run adds a row.
var columns = []string{
	"environment", "kernel", "absent", "go", "c", "selftest", "torture", "placement", "huge", "words-p50-us", "data-p50-us", "why",
}

// checker runs the checks.
type checker struct {
	brief    bool
	causes   []string // reasons why the library may fail here; if empty, the library must work
	limit    time.Duration
	prefix   []string // a command that starts each check, and the arguments of this command
	self     string
	shmbench string
	c        string // the program that uses the library in C; empty if there is none
	why      []string
}

// find finds shmbench and the C program, which are in the directory of this program.
func (c *checker) find() (err error) {
	if c.self, err = os.Executable(); err != nil {
		return err
	}
	dir := filepath.Dir(c.self)
	c.shmbench = filepath.Join(dir, "shmbench")
	if _, err := os.Stat(c.shmbench); err != nil {
		return err
	}
	c.c = filepath.Join(dir, "environ-c")
	if _, err := os.Stat(c.c); err != nil {
		c.c = ""
	}
	return nil
}

// row runs all checks and returns their results as a row of the table. It also reports whether the outcome is the
// expected one.
func (c *checker) row(name string) (string, bool) {
	kernel, absent := c.features()
	goForm := c.form("go", c.self, "library")
	cForm := "no compiler"
	if c.c != "" {
		cForm = c.form("c", c.c)
	}
	selftest, placement := c.selftest()
	torture := c.torture()
	huge := "works"
	if c.run(c.self, "huge").err != nil {
		huge = "absent" // not a failure, because only the host can reserve huge pages
	}
	words, data := c.crash()
	why := strings.Join(c.why, "; ")
	if why == "" {
		why = "-"
	}
	row := []string{name, kernel, absent, goForm, cForm, selftest, torture, placement, huge, words, data, why}
	for i, value := range row {
		row[i] = strings.Join(strings.Fields(value), " ")
	}
	return strings.Join(row, "\t"), c.expected()
}

// expected reports whether the outcome is the expected one. If the user gave no causes, no check may have failed.
// Otherwise at least one check must have failed, and each failure must name one of the causes.
func (c *checker) expected() bool {
	for _, why := range c.why {
		if !slices.ContainsFunc(c.causes, func(cause string) bool { return strings.Contains(why, cause) }) {
			return false
		}
	}
	return (len(c.why) > 0) == (len(c.causes) > 0)
}

// outcome is the result of a check.
type outcome struct {
	stdout, stderr string
	err            error
}

// run executes a check, through the command that the user gave, if any. It returns what the check printed, and its
// error.
func (c *checker) run(args ...string) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), c.limit)
	defer cancel()
	argv := append(append([]string{}, c.prefix...), args...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// The check gets a process group of its own, so that all its processes can be ended with it.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Minute
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("not within %v", c.limit)
	}
	return outcome{stdout.String(), stderr.String(), err}
}

// complain records why a check has failed.
func (c *checker) complain(check string, o outcome) {
	c.why = append(c.why, fmt.Sprintf("%s: %s", check, reason(o)))
}

// reason returns the line in which a program says why it failed: the fatal error or panic of the Go runtime, or
// else the last line.
func reason(o outcome) string {
	last := ""
	for line := range strings.Lines(o.stderr) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		for _, prefix := range []string{"fatal error: ", "panic: ", "runtime: "} {
			if strings.HasPrefix(line, prefix) {
				return line
			}
		}
		last = line
	}
	if last == "" {
		return fmt.Sprint(o.err)
	}
	return last
}

// features returns the version of the kernel, and the kernel features that the library lacks here.
func (c *checker) features() (kernel, absent string) {
	o := c.run(c.self, "features")
	if o.err != nil {
		c.complain("features", o)
		return "?", "?"
	}
	kernel, names := "?", []string{}
	for line := range strings.Lines(o.stdout) {
		switch fields := strings.Split(strings.TrimSpace(line), "\t"); fields[0] {
		case "kernel":
			kernel = fields[1]
		case "absent":
			names = append(names, fields[1])
		}
	}
	if len(names) == 0 {
		return kernel, "none"
	}
	return kernel, strings.Join(names, ",")
}

// form runs the given program, which uses the library for a moment. It returns "works" or "fails", and records why the
// program failed.
func (c *checker) form(name string, args ...string) string {
	o := c.run(args...)
	if o.err != nil {
		c.complain(name, o)
		return "fails"
	}
	return "works"
}

// selftest returns how many self-tests passed, failed and were skipped, and whether memory can be placed on NUMA
// nodes.
func (c *checker) selftest() (counts, placement string) {
	args := []string{c.shmbench, "selftest", "--timeout", "30s"}
	if c.brief {
		args = append(args, "--only", "features,arena/*,exclusion,wake/*,place/bind:0,crash/anywhere")
	}
	o := c.run(args...)
	counts, placement = "fails", "?"
	for line := range strings.Lines(o.stdout) {
		fields := strings.SplitN(strings.TrimSpace(line), " ", 4)
		if len(fields) < 4 || fields[0] != "RESULT" {
			continue
		}
		switch {
		case fields[1] == "total:":
			counts = strings.TrimPrefix(strings.TrimSpace(line), "RESULT total: ")
		case fields[2] == "place/bind:0:":
			placement = map[string]string{"ok": "works", "skip": "absent", "fail": "fails"}[fields[1]]
		}
		if fields[1] == "fail" {
			c.why = append(c.why, "selftest "+fields[2]+" "+fields[3])
		}
	}
	if o.err != nil && counts == "fails" {
		c.complain("selftest", o)
	}
	return counts, placement
}

// torture returns the number of deaths that the primitives have survived.
func (c *checker) torture() string {
	duration := "3s"
	if c.brief {
		duration = "1s"
	}
	// A wait may last for 10 minutes, because the result must not depend on the speed of the machine.
	o := c.run(c.shmbench, "torture", "--duration", duration, "--bound", "10m", "--timeout", "60s", "--format", "json")
	var result struct {
		Deaths     int      `json:"deaths"`
		Violations []string `json:"violations"`
		Dump       string   `json:"dump"`
	}
	if err := json.Unmarshal([]byte(o.stdout), &result); err != nil || o.err != nil && len(result.Violations) == 0 {
		c.complain("torture", o)
		return "fails"
	}
	for _, violation := range result.Violations {
		c.why = append(c.why, fmt.Sprintf("torture: %s: %s", violation, reason(outcome{stderr: result.Dump, err: o.err})))
	}
	return fmt.Sprintf("%d deaths, %d violations", result.Deaths, len(result.Violations))
}

// crash kills holders of a lock and returns two median times, both measured from the kill. After the first time, the
// survivor has read in the words of the lock that the holder is dead. After the second time, the survivor may also
// use the data that the lock guards.
func (c *checker) crash() (words, data string) {
	kills := "40"
	if c.brief {
		kills = "3"
	}
	// The time limit is for all kills together. They take minutes if the CPUs are emulated.
	o := c.run(c.shmbench, "crash", "--prim", "shmsync:mutex,shmsync:mutex-told", "--place", "any", "--kills", kills,
		"--count", "1", "--cc", "none", "--timeout", c.limit.String(), "--format", "json")
	var result struct {
		Cells []struct {
			Subject, Status, Reason string
			Summary                 map[string]struct{ Center float64 }
		}
	}
	words, data = "fails", "fails"
	if err := json.Unmarshal([]byte(o.stdout), &result); err != nil {
		c.complain("crash", o)
		return words, data
	}
	for _, cell := range result.Cells {
		text := cell.Status
		switch {
		case cell.Status != "ok":
			c.why = append(c.why, fmt.Sprintf("crash %s: %s: %s", cell.Subject, cell.Status, cell.Reason))
		case c.brief:
			text = "works" // a few kills are too few for a median
		default:
			text = fmt.Sprintf("%.0f", cell.Summary["p50-ns"].Center/1000)
		}
		switch cell.Subject {
		case "shmsync:mutex-told":
			words = text
		case "shmsync:mutex":
			data = text
		}
	}
	return words, data
}
