//go:build linux

package plan

import "fmt"

// busiest is how many of some workers, each busy on a CPU of its own, the quota of the cgroup leaves running. Pairs of workers are
// measured all the same, with a warning.
func (o *Options) busiest(workers int) int {
	if quota := o.quota(); quota > 0 {
		return min(workers, max(int(quota), 2))
	}
	return workers
}

// quota is the CPU time of the cgroup, in CPUs, if that is less than the CPUs of the run; 0 otherwise.
func (o *Options) quota() float64 {
	if o.Topology == nil || o.Topology.Limits.Quota >= float64(len(o.CPUs)) {
		return 0
	}
	return o.Topology.Limits.Quota
}

// QuotaNote says what a quota of CPU time does to a run. It is empty without one.
func (o *Options) QuotaNote() string {
	quota := o.quota()
	if quota == 0 {
		return ""
	}
	return fmt.Sprintf("the cgroup gives this run the time of %.2f CPUs, and it uses %d: busy workers are stopped until the next period, and a suite has cells of at most %d workers",
		quota, len(o.CPUs), o.busiest(len(o.CPUs)))
}
