//go:build linux

package host

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// unlimited is the text for a resource limit that is not set.
const unlimited = "unlimited"

// resources are the limits of a process that can change the figures of a run, or end the run.
var resources = []struct {
	name string
	id   int
}{
	{"RLIMIT_AS", unix.RLIMIT_AS}, {"RLIMIT_FSIZE", unix.RLIMIT_FSIZE}, {"RLIMIT_MEMLOCK", unix.RLIMIT_MEMLOCK},
	{"RLIMIT_NICE", unix.RLIMIT_NICE}, {"RLIMIT_NOFILE", unix.RLIMIT_NOFILE}, {"RLIMIT_NPROC", unix.RLIMIT_NPROC},
	{"RLIMIT_RTPRIO", unix.RLIMIT_RTPRIO},
}

// resourceLimits returns the soft limits of this process, which the workers inherit.
func resourceLimits() map[string]string {
	limits := map[string]string{}
	for _, r := range resources {
		var limit unix.Rlimit
		if unix.Getrlimit(r.id, &limit) == nil {
			limits[r.name] = limitText(limit.Cur)
		}
	}
	return limits
}

func limitText(v uint64) string {
	if v == unix.RLIM_INFINITY {
		return unlimited
	}
	return strconv.FormatUint(v, 10)
}
