package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestReadRules(t *testing.T) {
	rules, err := readRules(strings.NewReader("1 allow\n435 ENOSYS\n"))
	require.NoError(t, err)
	require.Equal(t, []rule{{1, seccompAllow}, {435, seccompErrno | uint32(unix.ENOSYS)}}, rules)

	for _, text := range []string{"", "read allow\n", "1\n", "1 refuse\n"} {
		_, err := readRules(strings.NewReader(text))
		require.Error(t, err, "%q", text)
	}
}

// TestFilterProgram checks that a filter gives each listed system call its own answer, and all other system calls the
// default answer.
func TestFilterProgram(t *testing.T) {
	prog := program([]rule{{1, seccompAllow}, {2, seccompErrno | 1}}, seccompKill)
	answer := func(call uint32) uint32 {
		for i := 1; i < len(prog); i++ {
			if prog[i].Code == unix.BPF_RET|unix.BPF_K {
				return prog[i].K
			} else if prog[i].K != call {
				i += int(prog[i].Jf)
			}
		}
		return 0
	}
	require.EqualValues(t, seccompAllow, answer(1))
	require.EqualValues(t, seccompErrno|1, answer(2))
	require.EqualValues(t, uint32(seccompKill), answer(3))
}

func TestReason(t *testing.T) {
	for stderr, want := range map[string]string{
		"":                                    "exit status 1",
		"begins\nenviron: no space\n\n":       "environ: no space",
		"fatal error: newosproc\n\ngoroutine": "fatal error: newosproc",
	} {
		require.Equal(t, want, reason(outcome{stderr: stderr, err: errors.New("exit status 1")}), "%q", stderr)
	}
}

// TestExpected checks which outcomes are expected. If the user gives no causes, no check may fail. Otherwise at least
// one check must fail, and each failure must name one of the causes.
func TestExpected(t *testing.T) {
	for _, c := range []struct {
		causes, why []string
		want        bool
	}{
		{nil, nil, true},
		{nil, []string{"go: no space"}, false},
		{[]string{"no space"}, nil, false},
		{[]string{"no space"}, []string{"go: no space"}, true},
		{[]string{"no space"}, []string{"go: no space", "c: killed"}, false},
		{[]string{"no space", "killed"}, []string{"go: no space", "c: killed"}, true},
	} {
		require.Equal(t, c.want, (&checker{causes: c.causes, why: c.why}).expected(), "%v", c)
	}
}
