//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/internal/proctest"
)

// The alert rules of the manual use metrics that shmctl prints. Each kind of finding raises one alert.
func TestAlertRules(t *testing.T) {
	text, err := os.ReadFile("../../docs/deploy/alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	name := testArena(t)
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	alice.does("lock mutex", "x")
	bob.does("lock mutex", "y")
	alice.begins("lock mutex", "y")
	bob.begins("lock mutex", "x")
	awaitFinding(t, diagnose.Deadlock, "waits", name)
	code, out, errs := shmctl("metrics", name)
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, `shmsync_trouble{arena="`+name+`",kind="deadlock"} 1`)
	alerts := map[string]int{}
	for _, rule := range file.Groups[0].Rules {
		for _, metric := range regexp.MustCompile(`shmsync_\w+`).FindAllString(rule.Expr, -1) {
			require.Contains(t, out, "\n"+metric+"{", rule.Alert)
		}
		if m := regexp.MustCompile(`kind=~"([^"]*)"`).FindStringSubmatch(rule.Expr); m != nil {
			for kind := range strings.SplitSeq(m[1], "|") {
				alerts[kind]++
			}
		}
	}
	for _, kind := range diagnose.Kinds {
		require.Equal(t, 1, alerts[kind], kind)
		require.Contains(t, out, `kind="`+kind+`"`)
		delete(alerts, kind)
	}
	require.Empty(t, alerts)

	t.Run("promtool", func(t *testing.T) {
		promtool := proctest.Program(t, "promtool")
		configuration, err := filepath.Abs("../../docs/deploy/prometheus.yaml")
		require.NoError(t, err)
		said, err := exec.Command(promtool, "check", "config", configuration).CombinedOutput()
		require.NoError(t, err, string(said))
		check := exec.Command(promtool, "check", "metrics")
		check.Stdin = strings.NewReader(out)
		said, err = check.CombinedOutput()
		require.NoError(t, err, string(said))
	})
}

// TestMetricsOfArenasElsewhere checks that metrics without arguments has the arenas that processes have open outside of
// /dev/shm: an alert must also tell of those. Each arena occurs once, also one that several processes have open.
func TestMetricsOfArenasElsewhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs")
	soon(t, exitOK, "create", "--size=1M", path)
	alice, bob := newAgent(t, path, "alice"), newAgent(t, path, "bob")
	alice.does("lock mutex", "ledger")
	bob.begins("lock mutex", "ledger")
	awaitWaits(t, path, 1)
	freeze(t, alice)
	awaitFinding(t, diagnose.StoppedHolder, "waits", path)
	out := soon(t, exitOK, "metrics")
	require.Equal(t, 1, strings.Count(out, `shmsync_trouble{arena="`+path+`",kind="stopped-holder"} 1`), out)
	inside := testArena(t)
	newAgent(t, inside, "carol")
	out = soon(t, exitOK, "metrics")
	require.Equal(t, 1, strings.Count(out, `shmsync_arena_bytes{arena="`+inside+`"}`), out)
}

// TestLoopOfTheManualKeepsTheOldNumbers runs one round of the documented loop with an shmctl that fails. The file must
// keep its contents and its time, so that the alert about old numbers can fire.
func TestLoopOfTheManualKeepsTheOldNumbers(t *testing.T) {
	manual, err := os.ReadFile("../../docs/deployment.md")
	require.NoError(t, err)
	loop := regexp.MustCompile(`(?m)^while .*shmctl metrics .*$`).FindString(string(manual))
	require.NotEmpty(t, loop)
	dir := t.TempDir()
	program := func(name, script string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	program("sleep", "kill $PPID") // ends the loop
	round := func() string {
		cmd := exec.Command("sh", "-c", loop)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		require.Error(t, cmd.Run(), "a signal ends it")
		b, err := os.ReadFile(filepath.Join(dir, "shmsync.prom"))
		require.NoError(t, err)
		return string(b)
	}
	program("shmctl", "echo good")
	require.Equal(t, "good\n", round())
	program("shmctl", "exit 1")
	require.Equal(t, "good\n", round())
	program("shmctl", "echo better")
	require.Equal(t, "better\n", round())
}
