//go:build linux

package report

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/bench/madeup"
	"github.com/shmsync/shmsync/internal/topology"
)

// The firmware, the limits and the duration of a run are in its file, in its table and on its page.
func TestProvenanceIsInFileTableAndPage(t *testing.T) {
	r := madeUp(t)
	r.Env.Firmware, r.Env.Arguments, r.Took = "SeaBIOS <1.16>", "isolcpus=1", 61*time.Second
	r.Env.Rlimits = map[string]string{"RLIMIT_MEMLOCK": "8388608", "RLIMIT_NOFILE": "unlimited"}
	r.Topology = &topology.Topology{Limits: topology.Limits{CPUs: []int{0, 1, 2}, Nodes: []int{0}, Quota: 1.5, Memory: 1 << 30, Pids: 99}}
	facts := []host.Fact{{Name: "firmware", Text: "SeaBIOS <1.16>"}, {Name: "kernel arguments", Text: "isolcpus=1"},
		{Name: "resource limits", Text: "RLIMIT_MEMLOCK 8388608; RLIMIT_NOFILE unlimited"},
		{Name: "cgroup", Text: "time of 1.50 CPUs; memory of 1 GB; 99 processes and threads"},
		{Name: "allowed", Text: "CPUs 0-2; memory of nodes 0"}, {Name: "duration", Text: "1m1s"}}

	d, err := NewDocument(r)
	require.NoError(t, err)
	var file bytes.Buffer
	require.NoError(t, WriteJSON(&file, d))
	name := filepath.Join(t.TempDir(), "run.json")
	require.NoError(t, os.WriteFile(name, file.Bytes(), 0o600))
	back, err := ReadDocument(name)
	require.NoError(t, err)
	require.Subset(t, back.Facts(), facts)

	var table bytes.Buffer
	require.NoError(t, WriteTable(&table, r))
	page := pageOf(t, back)
	require.NoError(t, madeup.CheckPage(page))
	for _, f := range facts {
		require.Contains(t, table.String(), "\n"+f.Name+": "+f.Text+"\n")
		require.Contains(t, page, "<th>"+f.Name+"</th><td>"+strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(f.Text)+"</td>")
	}
}

// A comparison of two files says which settings differ. It does not report settings that an earlier program did not
// record.
func TestDifferencesOfProvenance(t *testing.T) {
	full := host.Environment{Firmware: "1", Microcode: "0x1", Turbo: "on", Rlimits: map[string]string{"RLIMIT_NOFILE": "64", "RLIMIT_AS": "unlimited"},
		Mitigations: map[string]string{"mds": "Clear buffers", "srso": "Safe RET"}}
	require.Empty(t, Differences(&full, &full))
	require.Empty(t, Differences(&full, &host.Environment{}))
	require.Empty(t, Differences(&host.Environment{}, &full))
	other := full
	other.Firmware, other.Turbo, other.Arguments = "2", "off", "mitigations=off"
	other.Rlimits = map[string]string{"RLIMIT_NOFILE": "64", "RLIMIT_AS": "9"}
	other.Mitigations = map[string]string{"mds": "Vulnerable", "srso": "Safe RET"}
	require.Equal(t, []string{"the firmware differs: 1, 2", "turbo differs: on, off", `the kernel arguments differ: "", "mitigations=off"`,
		"the mitigation of mds differs: Clear buffers, Vulnerable", "RLIMIT_AS differs: unlimited, 9"}, Differences(&full, &other))
}
