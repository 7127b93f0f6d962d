//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
)

// environment is what the figures of a run depend on.
type environment struct {
	GOOS        string  `json:"goos"`
	GOARCH      string  `json:"goarch"`
	Go          string  `json:"go"`
	Revision    string  `json:"revision,omitempty"`
	CPU         string  `json:"cpu"`
	CPUs        int     `json:"cpus"`
	Used        []int   `json:"cpus_used"`
	Nodes       int     `json:"numa_nodes"`
	Kernel      string  `json:"kernel"`
	Hypervisor  string  `json:"hypervisor"`
	Clocksource string  `json:"clocksource"`
	Governor    string  `json:"governor,omitempty"`
	Load        float64 `json:"load"`
	NUMABalance bool    `json:"numa_balancing"`
	SMT         bool    `json:"smt"`
	Steal       float64 `json:"steal"`     // share of the CPUs' time that the hypervisor took during the run
	Throttled   int     `json:"throttled"` // how often the cgroup's quota stopped the run

	// Caps are features of the kernel that cells may need: yes, or why not.
	Caps map[string]string `json:"caps,omitempty"`
}

// readEnvironment describes this host; what cannot be read stays empty.
func readEnvironment(used []int) environment {
	var uts unix.Utsname
	unix.Uname(&uts)
	e := environment{
		GOOS: runtime.GOOS, GOARCH: runtime.GOARCH, Go: runtime.Version(),
		CPUs: runtime.NumCPU(), Used: used,
		Kernel:      unix.ByteSliceToString(uts.Release[:]),
		Clocksource: readLine("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
		Governor:    readLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
		NUMABalance: readLine("/proc/sys/kernel/numa_balancing") == "1",
		SMT:         readLine("/sys/devices/system/cpu/smt/active") == "1",
		Nodes:       1,
		Caps:        map[string]string{},
	}
	for _, f := range shmsync.Features() {
		e.Caps[f.Name()] = "yes"
		if err := f.Check(); err != nil {
			e.Caps[f.Name()] = err.Error()
		}
	}
	e.Load = loadAverage()
	if nodes, err := parseInts(strings.ReplaceAll(readLine("/sys/devices/system/node/online"), "-", ":")); err == nil && len(nodes) > 0 {
		e.Nodes = len(nodes)
	}
	e.CPU, e.Hypervisor = cpuInfo()
	if isTranslated() {
		e.CPU = translatedOn(e.CPU)
	}
	if e.Hypervisor == "" {
		e.Hypervisor = readLine("/sys/hypervisor/type")
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				e.Revision = s.Value
			}
		}
	}
	return e
}

// cpuInfo gives the CPU's model and, where the CPU says that there is one, the
// hypervisor.
func cpuInfo() (model, hypervisor string) {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "", ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		k, v, _ := strings.Cut(s.Text(), ":")
		v = strings.TrimSpace(v)
		switch strings.TrimSpace(k) {
		case "model name", "CPU part":
			if model == "" {
				model = v
			}
		case "flags":
			if strings.Contains(" "+v+" ", " hypervisor ") {
				hypervisor = "unnamed hypervisor"
				if vendor := readLine("/sys/class/dmi/id/sys_vendor"); vendor != "" {
					hypervisor = vendor
				}
			}
			return model, hypervisor
		}
	}
	return model, hypervisor
}

func readLine(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// warnings say what makes the figures of this run weaker.
func (e environment) warnings(o *options) []string {
	var w []string
	warn := func(format string, args ...any) { w = append(w, fmt.Sprintf(format, args...)) }
	if emulated(e.CPU) {
		warn("emulated CPU: functional results only")
	}
	if e.Hypervisor != "" {
		warn("virtual machine (%s): a wake across CPUs costs far more than on bare metal", e.Hypervisor)
	}
	if e.Load/float64(e.CPUs) > 0.5 {
		warn("load average %.2f on %d CPUs: others run here", e.Load, e.CPUs)
	}
	if e.Clocksource != "" && e.Clocksource != "tsc" && e.GOARCH == "amd64" {
		warn("clocksource %s: one-way times across CPUs may be off", e.Clocksource)
	}
	if e.Governor == "powersave" || e.Governor == "ondemand" {
		warn("CPU frequency governor %s: figures depend on how busy the host is", e.Governor)
	}
	if e.NUMABalance && e.Nodes > 1 {
		warn("numa_balancing is on: the kernel moves pages and threads")
	}
	if len(o.CPUs) < 2 {
		warn("one usable CPU: cells across CPUs are skipped")
	}
	if o.Count < 6 {
		warn("%d repetitions: intervals are ranges; ask for --count 6 or more", o.Count)
	}
	return w
}

// loadAverage is how many threads ran or were about to, in the mean of the last minute.
func loadAverage() float64 {
	load, _ := strconv.ParseFloat(strings.SplitN(readLine("/proc/loadavg"), " ", 2)[0], 64)
	return load
}
