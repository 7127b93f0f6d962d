//go:build linux

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every proof succeeds here, or says why it cannot run here.
func TestSelftest(t *testing.T) {
	code, out, errs := shmbench(t, "selftest")
	require.Equal(t, exitOK, code, out+errs)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for _, line := range lines {
		require.Regexp(t, resultLine, line)
	}
	require.Contains(t, lines[len(lines)-1], " 0 fail")
	for _, name := range []string{"ok exclusion", "ok crash/anywhere", "ok crash/without:robust", "ok wake/bitset", "ok wake/near", "ok place/switched-off", "ok pin"} {
		require.Contains(t, out, "RESULT "+name)
	}
	code, listed, _ := shmbench(t, "selftest", "-n")
	require.Zero(t, code)
	require.Len(t, strings.Fields(listed), len(lines)-1, "-n names what is proven")
}

func TestSelftestOnly(t *testing.T) {
	code, out, _ := shmbench(t, "selftest", "--only", "host,place/absent")
	require.Zero(t, code)
	require.Len(t, strings.Split(strings.TrimSpace(out), "\n"), 3, out)
	for _, pattern := range []string{"no/such", "[", "crash"} {
		code, _, errs := shmbench(t, "selftest", "--only", pattern)
		require.Equal(t, exitUsage, code)
		require.Contains(t, errs, "--only")
	}
}

var resultLine = regexp.MustCompile(`^RESULT (ok|skip|fail) [a-z0-9:,/-]+: .+$|^RESULT total: \d+ ok, \d+ skip, \d+ fail$`)
