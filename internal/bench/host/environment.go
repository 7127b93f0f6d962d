//go:build linux

package host

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench/place"
)

// Environment has the properties of a host and a run on which the figures depend.
type Environment struct {
	GOOS        string  `json:"goos"`
	GOARCH      string  `json:"goarch"`
	Go          string  `json:"go"`
	GOAMD64     string  `json:"goamd64,omitempty"`
	Revision    string  `json:"revision,omitempty"`
	Modified    bool    `json:"modified,omitempty"` // the source differs from the revision
	Compiler    string  `json:"compiler,omitempty"` // compiler of the peers in C, with its flags
	Libc        string  `json:"libc,omitempty"`     // C library of the peers in C
	Date        string  `json:"date"`               // when the run began, UTC
	CPU         string  `json:"cpu"`
	CPUs        int     `json:"cpus"`
	Used        []int   `json:"cpus_used"`
	Nodes       int     `json:"numa_nodes"`
	Kernel      string  `json:"kernel"`
	Hypervisor  string  `json:"hypervisor"`
	Clocksource string  `json:"clocksource"`
	Governor    string  `json:"governor,omitempty"`
	Driver      string  `json:"driver,omitempty"` // kernel driver that sets the CPU frequencies
	Load        float64 `json:"load"`
	NUMABalance bool    `json:"numa_balancing"`
	SMT         bool    `json:"smt"`
	Machine     string  `json:"machine,omitempty"`
	Firmware    string  `json:"firmware,omitempty"`  // vendor, version and date
	Arguments   string  `json:"arguments,omitempty"` // arguments of the kernel on which figures depend
	Microcode   string  `json:"microcode,omitempty"`
	Turbo       string  `json:"turbo,omitempty"` // on or off
	Idle        string  `json:"idle,omitempty"`  // driver and governor of the CPUs' idle states
	Steal       float64 `json:"steal"`           // share of the CPUs' time that the hypervisor took during the run
	Others      float64 `json:"others"`          // share of the used CPUs' time that other programs took during the run
	Throttled   int     `json:"throttled"`       // how often the quota of the cgroup stopped the run

	// Mitigations are the kernel's mitigations for flaws that the CPU has.
	Mitigations map[string]string `json:"mitigations,omitempty"`

	// Rlimits are the soft resource limits of this process and its workers. A limit is a number or "unlimited".
	Rlimits map[string]string `json:"rlimits,omitempty"`

	// Caps are features of the kernel that some measurements need. A value is "yes", or the reason why the feature is
	// missing.
	Caps map[string]string `json:"caps,omitempty"`
}

// Read describes this host. Fields that cannot be read stay empty.
func Read(used []int) Environment {
	var uts unix.Utsname
	unix.Uname(&uts)
	e := Environment{
		GOOS: runtime.GOOS, GOARCH: runtime.GOARCH, Go: runtime.Version(),
		CPUs: runtime.NumCPU(), Used: used,
		Kernel:      unix.ByteSliceToString(uts.Release[:]),
		Clocksource: ReadLine("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
		Governor:    ReadLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
		Driver:      ReadLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"),
		NUMABalance: ReadLine("/proc/sys/kernel/numa_balancing") == "1",
		SMT:         ReadLine("/sys/devices/system/cpu/smt/active") == "1",
		Nodes:       1,
		Date:        time.Now().UTC().Format(time.RFC3339),
		Caps:        map[string]string{},
	}
	for _, f := range shmsync.Features() {
		e.Caps[f.Name()] = "yes"
		if err := f.Check(); err != nil {
			e.Caps[f.Name()] = err.Error()
		}
	}
	e.Load = LoadAverage()
	if nodes, err := place.ParseInts(strings.ReplaceAll(ReadLine("/sys/devices/system/node/online"), "-", ":")); err == nil && len(nodes) > 0 {
		e.Nodes = len(nodes)
	}
	e.CPU, e.Hypervisor = cpuInfo()
	if isTranslated() {
		e.CPU = translatedOn(e.CPU)
	}
	if e.Hypervisor == "" {
		e.Hypervisor = ReadLine("/sys/hypervisor/type")
	}
	e.build()
	e.settings()
	return e
}

// cpuInfo returns the CPU's model and, if the CPU reports one, the hypervisor.
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
				if vendor := ReadLine("/sys/class/dmi/id/sys_vendor"); vendor != "" {
					hypervisor = vendor
				}
			}
			return model, hypervisor
		}
	}
	return model, hypervisor
}

// Warnings returns texts that say what makes the figures of this run less reliable.
func (e Environment) Warnings(cpus, count int) []string {
	var w []string
	warn := func(format string, args ...any) { w = append(w, fmt.Sprintf(format, args...)) }
	if Emulated(e.CPU) {
		warn("emulated CPU: functional results only")
	}
	if e.Hypervisor != "" {
		warn("virtual machine (%s): a wake across CPUs costs far more than on bare metal", e.Hypervisor)
	}
	if e.Load/float64(e.CPUs) > 0.5 {
		warn("load average %.2f on %d CPUs when the run began", e.Load, e.CPUs)
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
	if cpus < 2 {
		warn("one usable CPU: cells across CPUs are skipped")
	}
	if count < 6 {
		warn("%d repetitions: intervals are ranges; ask for --count 6 or more", count)
	}
	return w
}

// Emulated reports whether an emulator provides a CPU of this model.
func Emulated(model string) bool {
	return strings.Contains(model, "TCG") || strings.Contains(model, "QEMU")
}
