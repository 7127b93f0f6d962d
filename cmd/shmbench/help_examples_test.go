//go:build linux

package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/torture"
)

// words splits the command line of an example into words, and understands quotes.
func words(line string) (list []string) {
	for _, m := range regexp.MustCompile(`'([^']*)'|(\S+)`).FindAllStringSubmatch(line, -1) {
		list = append(list, m[1]+m[2])
	}
	return list
}

// The help of each command has a sentence in the imperative, and at least two examples. Each example of a command that
// measures gives a plan on this host, unless it names CPUs.
func TestHelpHasExamples(t *testing.T) {
	parser, err := kong.New(new(program), kong.Name("shmbench"), kong.Vars{"torturejobs": torture.JobNames()})
	require.NoError(t, err)
	seen := 0
	for _, node := range parser.Model.Children {
		if node.Hidden {
			continue
		}
		seen++
		require.Regexp(t, `^[A-Z][a-z]+ .*[.)]$`, node.Help, node.Name)
		verb, _, _ := strings.Cut(node.Help, " ")
		require.NotRegexp(t, `s$`, strings.TrimSuffix(verb, "ss"), "%s: %q is imperative", node.Name, node.Help)
		require.GreaterOrEqual(t, len(examples[node.Name]), 2, node.Name)
		for _, e := range examples[node.Name] {
			args := append([]string{node.Name}, words(e[0])...)
			require.Contains(t, examplesText(node.Name), "shmbench "+node.Name+" "+e[0])
			if commandScenarios[node.Name] == nil && node.Name != "suite" && node.Name != "bars" && node.Name != "torture" {
				continue // it reads files, or has no plan
			}
			if strings.Contains(e[0], "--cpus") {
				continue // it is for a larger host
			}
			var stdout, stderr bytes.Buffer
			require.Zero(t, realMain(append(args, "-n"), &stdout, &stderr), "%v: %s", args, stderr.String())
			require.NotContains(t, stderr.String(), "means nothing to", args)
		}
	}
	require.Len(t, examples, seen)
}
