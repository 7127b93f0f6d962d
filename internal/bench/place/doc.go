// Package place decides on which CPUs processes run.
//
// It lists the CPUs that this process may use, orders them by what they share, confines threads
// and processes to them, and limits the CPU time of workers by a cgroup.
package place
