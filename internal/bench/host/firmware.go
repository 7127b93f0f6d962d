//go:build linux

package host

import "strings"

const (
	dmi        = "/sys/class/dmi/id/"
	deviceTree = "/sys/firmware/devicetree/base/"
)

// machine reads the names of this machine and of its firmware. It reads no serial number, and no other file that only
// root may read.
func (e *Environment) machine(read func(name string) string) {
	e.Machine = join(read(dmi+"sys_vendor"), read(dmi+"product_name"))
	if e.Machine == "" { // a machine without DMI, such as many with arm64
		e.Machine = join(strings.TrimRight(read(deviceTree+"model"), "\x00"))
	}
	e.Firmware = join(read(dmi+"bios_vendor"), read(dmi+"bios_version"), read(dmi+"bios_date"))
}

// join joins texts with spaces. It omits the placeholders that vendors leave in fields that they should have filled
// in.
func join(texts ...string) string {
	var list []string
	for _, text := range texts {
		text = strings.Join(strings.Fields(text), " ")
		switch strings.ToLower(text) {
		case "", "default string", "not specified", "to be filled by o.e.m.", "unknown":
			continue
		}
		list = append(list, text)
	}
	return strings.Join(list, " ")
}

// arguments are the arguments of the kernel's command line on which figures depend. A report shows no other arguments,
// because they may contain names of disks.
var arguments = map[string]bool{
	"amd_pstate": true, "cgroup_disable": true, "clocksource": true, "cpufreq.default_governor": true, "cpuidle.governor": true,
	"cpuidle.off": true, "default_hugepagesz": true, "hugepages": true, "hugepagesz": true, "idle": true,
	"intel_idle.max_cstate": true, "intel_pstate": true, "irqaffinity": true, "isolcpus": true, "maxcpus": true,
	"mitigations": true, "nohz": true, "nohz_full": true, "nosmt": true, "nosmp": true, "noswap": true, "nr_cpus": true, "numa": true,
	"numa_balancing": true, "pcie_aspm": true, "preempt": true, "processor.max_cstate": true, "rcu_nocbs": true,
	"skew_tick": true, "threadirqs": true, "transparent_hugepage": true, "tsc": true,
}

// kernelArguments returns the arguments that a report shows, in the order in which the command line has them.
func kernelArguments(line string) string {
	var list []string
	for word := range strings.FieldsSeq(line) {
		if name, _, _ := strings.Cut(word, "="); arguments[name] {
			list = append(list, word)
		}
	}
	return strings.Join(list, " ")
}
