//go:build linux

package snippets

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var deployDir = filepath.Join("..", "..", "docs", "deploy")

// systemdTool returns the path of a program of systemd.
func systemdTool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		require.Empty(t, os.Getenv("SHMSYNC_NEED_SYSTEMD"), err)
		t.Skipf("needs %s, of the package systemd: %v", name, err)
	}
	return path
}

// deployed returns the contents of a file in docs/deploy.
func deployed(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployDir, name))
	require.NoError(t, err)
	return string(text)
}

// TestDeployIsLinked requires that the page on deployment links to each file in docs/deploy.
func TestDeployIsLinked(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(deployDir, "..", "deployment.md"))
	require.NoError(t, err)
	files, err := os.ReadDir(deployDir)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		require.Contains(t, string(page), "(deploy/"+f.Name()+")")
	}
}

// TestUnits checks the unit files with systemd.
func TestUnits(t *testing.T) {
	analyze := systemdTool(t, "systemd-analyze")
	units, err := filepath.Glob(filepath.Join(deployDir, "*.service"))
	require.NoError(t, err)
	require.NotEmpty(t, units)
	const program = "/usr/local/bin/jobs"
	// verify returns the lines that systemd prints about a unit. It ignores the exit status, which is 0 even if a
	// setting is unknown. It omits lines about other units of this host.
	verify := func(text string) (said []string) {
		const unit = "jobs@1.service" // an instance, if the unit is a template
		name := filepath.Join(t.TempDir(), unit)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o666))
		out, _ := exec.Command(analyze, "verify", "--man=no", name).CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, unit) {
				said = append(said, line)
			}
		}
		return said
	}
	for _, name := range units {
		text := deployed(t, filepath.Base(name))
		require.Contains(t, text, program)
		require.Empty(t, verify(strings.ReplaceAll(text, program, "/bin/true")), name)
	}
	said := verify("[Service]\nExecStart=/bin/true\nRestartAlways=yes\n")
	require.Contains(t, strings.Join(said, ""), "RestartAlways", "the check finds a setting that does not exist")
}

// TestTmpfiles makes systemd carry out the file for tmpfiles.d, in a directory of the test.
func TestTmpfiles(t *testing.T) {
	tmpfiles := systemdTool(t, "systemd-tmpfiles")
	// The file names the user jobs and the group jobs, which need not exist on the machine of the test.
	text := strings.ReplaceAll(deployed(t, "jobs.conf"), " jobs jobs ", " - - ")
	root := t.TempDir()
	conf := filepath.Join(t.TempDir(), "jobs.conf")
	require.NoError(t, os.WriteFile(conf, []byte(text), 0o666))
	out, err := exec.Command(tmpfiles, "--create", "--root="+root, conf).CombinedOutput()
	require.NoError(t, err, "%s", out)
	info, err := os.Stat(filepath.Join(root, "run", "jobs"))
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|0o700, info.Mode())
}

// decode reads YAML into v. A field that v does not have is an error.
func decode(t *testing.T, name string, v any) {
	t.Helper()
	d := yaml.NewDecoder(bytes.NewReader([]byte(deployed(t, name))))
	d.KnownFields(true)
	require.NoError(t, d.Decode(v), name)
}

// TestCompose checks that the services of each compose file share memory.
func TestCompose(t *testing.T) {
	type service struct {
		Image, User, Restart, IPC string
		ShmSize                   string `yaml:"shm_size"`
		Command, Volumes          []string
	}
	type file struct {
		Services map[string]service
		Volumes  map[string]struct {
			Driver string
			Opts   map[string]string `yaml:"driver_opts"`
		}
	}
	var ipc, volume file
	decode(t, "compose.yaml", &ipc)
	require.Len(t, ipc.Services, 2)
	require.Equal(t, "shareable", ipc.Services["first"].IPC)
	require.NotEmpty(t, ipc.Services["first"].ShmSize)
	require.Equal(t, "service:first", ipc.Services["second"].IPC)
	decode(t, "compose-volume.yaml", &volume)
	require.Len(t, volume.Services, 2)
	for name, s := range volume.Services {
		require.Len(t, s.Volumes, 1)
		v, dir, _ := strings.Cut(s.Volumes[0], ":")
		require.Equal(t, "tmpfs", volume.Volumes[v].Opts["type"], name)
		require.Equal(t, []string{"--arena", dir + "/jobs"}, s.Command)
	}
	for _, f := range []file{ipc, volume} {
		for name, s := range f.Services {
			require.Equal(t, "1000:1000", s.User, name)
		}
	}
}

// TestPod checks that each container of the pod mounts the volume of the pod.
func TestPod(t *testing.T) {
	var pod struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Name string }
		Spec       struct {
			SecurityContext struct {
				RunAsUser  int `yaml:"runAsUser"`
				RunAsGroup int `yaml:"runAsGroup"`
				FSGroup    int `yaml:"fsGroup"`
			} `yaml:"securityContext"`
			Volumes []struct {
				Name     string
				EmptyDir struct {
					Medium    string
					SizeLimit string `yaml:"sizeLimit"`
				} `yaml:"emptyDir"`
			}
			Containers []struct {
				Name, Image  string
				Args         []string
				VolumeMounts []struct {
					Name      string
					MountPath string `yaml:"mountPath"`
				} `yaml:"volumeMounts"`
				Resources struct{ Limits map[string]string }
			}
		}
	}
	decode(t, "pod.yaml", &pod)
	require.Equal(t, []string{"v1", "Pod"}, []string{pod.APIVersion, pod.Kind})
	require.Len(t, pod.Spec.Volumes, 1)
	require.Equal(t, "Memory", pod.Spec.Volumes[0].EmptyDir.Medium)
	require.Len(t, pod.Spec.Containers, 2)
	for _, c := range pod.Spec.Containers {
		require.Len(t, c.VolumeMounts, 1)
		require.Equal(t, pod.Spec.Volumes[0].Name, c.VolumeMounts[0].Name)
		require.Equal(t, []string{"--arena", c.VolumeMounts[0].MountPath + "/jobs"}, c.Args)
	}
}
