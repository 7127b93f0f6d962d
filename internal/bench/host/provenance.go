//go:build linux

package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// module is the path of this module.
const module = "github.com/shmsync/shmsync"

// build finds out from which source this program was built. "go run" does not record the revision in the program,
// but usually runs in a checkout. In that case build asks git.
func (e *Environment) build() {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			e.Revision = s.Value
		case "vcs.modified":
			e.Modified = s.Value == "true"
		case "GOAMD64":
			e.GOAMD64 = s.Value
		}
	}
	if dir := checkout(); e.Revision == "" && dir != "" {
		if out, err := exec.Command("git", "-C", dir, "rev-parse", "HEAD").Output(); err == nil {
			e.Revision = strings.TrimSpace(string(out))
		}
		if out, err := exec.Command("git", "-C", dir, "status", "--porcelain", "-uno").Output(); err == nil {
			e.Modified = len(out) > 0
		}
	}
}

// checkout returns the root of the checkout of this module that contains the working directory, or an empty string.
func checkout() string {
	dir, err := os.Getwd()
	for err == nil {
		b, rerr := os.ReadFile(filepath.Join(dir, "go.mod"))
		if rerr == nil && strings.HasPrefix(string(b), "module "+module+"\n") {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	return ""
}

// settings reads further settings on which the speed of this host depends.
func (e *Environment) settings() {
	const cpu = "/sys/devices/system/cpu/"
	e.machine(ReadLine)
	e.Arguments = kernelArguments(ReadLine("/proc/cmdline"))
	e.Rlimits = resourceLimits()
	e.Microcode = ReadLine(cpu + "cpu0/microcode/version")
	switch {
	case ReadLine(cpu+"intel_pstate/no_turbo") == "1", ReadLine(cpu+"cpufreq/boost") == "0":
		e.Turbo = "off"
	case ReadLine(cpu+"intel_pstate/no_turbo") == "0", ReadLine(cpu+"cpufreq/boost") == "1":
		e.Turbo = "on"
	}
	e.Idle = strings.TrimSpace(ReadLine(cpu+"cpuidle/current_driver") + " " + ReadLine(cpu+"cpuidle/current_governor"))
	files, _ := filepath.Glob(cpu + "vulnerabilities/*")
	for _, f := range files {
		if text := ReadLine(f); text != "" && text != "Not affected" {
			if e.Mitigations == nil {
				e.Mitigations = map[string]string{}
			}
			e.Mitigations[filepath.Base(f)] = text
		}
	}
}
