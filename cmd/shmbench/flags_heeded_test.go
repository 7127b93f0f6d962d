//go:build linux

package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// aValue has, for each flag of a scenario, a value that no scenario has by default.
var aValue = map[string]string{
	"place": "any", "procs": "3", "threads": "5", "cs": "7us", "think": "3us", "gap": "123ms", "hog": "1", "kills": "7", "waiters": "77,11",
	"read": "33", "permits": "6", "keys": "9", "locks": "3", "skew": "zipf", "wake": "5", "batch": "3", "capacity": "33",
	"rate": "777", "load": "3", "noise": "2", "quota": "50", "spin": "33us", "mem": "local", "arena": "/dev/shm", "lines": "8", "pad": "512", "role": "waiter", "huge": "thp", "mib": "5",
}

// The flags that a command lists are those that change its plan. If the user gives another flag,
// the command warns that it has no effect.
func TestFlagsThatMeanSomething(t *testing.T) {
	needTwoCPUs(t) // on one CPU, the default placement of some scenarios has no cells, whatever the flags are
	planOf := func(args ...string) (plan, errs string) {
		var stdout, stderr bytes.Buffer
		require.Zero(t, realMain(append(args, "-n"), &stdout, &stderr), "%v: %s", args, stderr.String())
		return stdout.String(), stderr.String()
	}
	for command := range commandScenarios {
		usually, errs := planOf(command)
		require.Empty(t, errs, command)
		var others []string
		for flag, value := range aValue {
			switch {
			case command == "lock" && flag == "rate": // with this flag, the command measures another scenario
			case heeds(command, flag):
				plan, errs := planOf(command, "--"+flag+"="+value)
				require.NotEqual(t, usually, plan, "%s heeds --%s", command, flag)
				require.Empty(t, errs)
			default:
				others = append(others, "--"+flag+"="+value)
			}
		}
		plan, errs := planOf(append([]string{command}, others...)...)
		require.Equal(t, usually, plan, "%s heeds none of %v", command, others)
		for _, flag := range others {
			name, _, _ := strings.Cut(flag, "=")
			require.Contains(t, errs, name+" means nothing to "+command)
		}
	}
}

var helpFlag = regexp.MustCompile(`(?m)^ +(?:-\w, )?--(?:\[no-\])?([\w-]+)`)

// The help of a command lists the flags that change its plan, and the command's own flags.
func TestHelpIsOfTheCommand(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	listed := func(command string) (names []string) {
		cmd := exec.Command(self, command, "--help") // because --help ends the process
		cmd.Env = append(os.Environ(), "SHMBENCH_WORKER=1")
		out, err := cmd.Output()
		require.NoError(t, err)
		for _, m := range helpFlag.FindAllStringSubmatch(string(out), -1) {
			names = append(names, m[1])
		}
		return names
	}
	for command, want := range map[string][]string{
		"compare": {"all", "help", "least", "metric"},
		"report":  {"help", "out"},
		"topo":    {"format", "help", "html", "out", "record", "topology"},
		"sem":     slices.Concat(runFlags, []string{"arena", "help", "permits", "place", "procs", "threads", "cs", "think"}),
		"bars":    slices.Concat(otherFlags["bars"], []string{"help", "only"}),
	} {
		require.ElementsMatch(t, want, listed(command), command)
	}
	whole := listed("suite")
	for _, flag := range slices.Concat(slices.Collect(maps.Keys(aValue)), runFlags) {
		require.Contains(t, whole, flag)
	}
	for command, list := range otherFlags {
		for _, flag := range list {
			require.Contains(t, whole, flag, command)
		}
	}
}
