//go:build linux

package plan

import "fmt"

// busiest returns how many of the given workers can run without a pause under the quota of the cgroup, if each
// worker keeps a CPU busy. But it returns at least 2 if there are 2 workers, because pairs of workers are measured
// even under a smaller quota, with a warning.
func (o *Options) busiest(workers int) int {
	if quota := o.quota(); quota > 0 {
		return min(workers, max(int(quota), 2))
	}
	return workers
}

// quota returns the CPU time that the cgroup allows, as a number of CPUs. It returns 0 if the cgroup allows enough for
// all CPUs of the run.
func (o *Options) quota() float64 {
	if o.Topology == nil || o.Topology.Limits.Quota >= float64(len(o.CPUs)) {
		return 0
	}
	return o.Topology.Limits.Quota
}

// QuotaNote returns a note on how the CPU quota of the cgroup affects a run. It is empty if the quota has no effect.
func (o *Options) QuotaNote() string {
	quota := o.quota()
	if quota == 0 {
		return ""
	}
	return fmt.Sprintf("the cgroup gives this run the time of %.2f CPUs, and it uses %d: busy workers are stopped until the next period, and a suite has cells of at most %d workers",
		quota, len(o.CPUs), o.busiest(len(o.CPUs)))
}
