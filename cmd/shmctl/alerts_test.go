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
