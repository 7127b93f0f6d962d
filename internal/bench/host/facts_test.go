//go:build linux

package host

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The firmware of a machine has a vendor, a version and a date. Placeholders of the vendor are omitted.
func TestMachineAndFirmware(t *testing.T) {
	for name, c := range map[string]struct {
		files             map[string]string
		machine, firmware string
	}{
		"server": {map[string]string{dmi + "sys_vendor": "Dell Inc.", dmi + "product_name": "PowerEdge  R760", dmi + "bios_vendor": "Dell Inc.",
			dmi + "bios_version": "2.1.5", dmi + "bios_date": "03/14/2024", dmi + "product_serial": "SECRET"},
			"Dell Inc. PowerEdge R760", "Dell Inc. 2.1.5 03/14/2024"},
		"board":       {map[string]string{dmi + "sys_vendor": "To Be Filled By O.E.M.", dmi + "bios_version": "P1.20"}, "", "P1.20"},
		"device tree": {map[string]string{deviceTree + "model": "Raspberry Pi 5 Model B\x00"}, "Raspberry Pi 5 Model B", ""},
		"container":   {},
	} {
		var e Environment
		e.machine(func(file string) string { return c.files[file] })
		require.Equal(t, c.machine, e.Machine, name)
		require.Equal(t, c.firmware, e.Firmware, name)
	}
}

func TestKernelArguments(t *testing.T) {
	require.Equal(t, "isolcpus=2-5 nohz_full=2-5 nosmt mitigations=off",
		kernelArguments("BOOT_IMAGE=/vmlinuz root=/dev/sda1 isolcpus=2-5 ro nohz_full=2-5 nosmt quiet mitigations=off user=ann"))
	require.Empty(t, kernelArguments("console=ttyS0"))
}

// The reported limits are those of this process: a limit that the test lowers is in the list.
func TestResourceLimits(t *testing.T) {
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old))
	lower := old
	lower.Cur = min(old.Cur, 12345)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &lower))
	limits := resourceLimits()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old))
	require.Equal(t, limitText(lower.Cur), limits["RLIMIT_MEMLOCK"])
	require.Len(t, limits, len(resources))
	require.Equal(t, "unlimited", limitText(unix.RLIM_INFINITY))
	require.Equal(t, "0", limitText(0))
}

// Each property that was read is among the facts, in words.
func TestFacts(t *testing.T) {
	e := Environment{Machine: "m", Firmware: "f", Revision: "abc", Modified: true, Driver: "intel_pstate", Governor: "powersave",
		Mitigations: map[string]string{"spectre_v2": "Retpolines", "mds": "Clear buffers"}, Rlimits: map[string]string{"RLIMIT_NOFILE": "64"}}
	require.Equal(t, []Fact{{"machine", "m"}, {"firmware", "f"}, {"frequencies", "intel_pstate powersave"},
		{"mitigations", "mds: Clear buffers; spectre_v2: Retpolines"}, {"source", "abc, modified"}, {"resource limits", "RLIMIT_NOFILE 64"}}, e.Facts())
	require.Empty(t, (&Environment{}).Facts())
}
