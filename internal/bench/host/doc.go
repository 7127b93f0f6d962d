// Package host describes what the figures of a run depend on: CPU, kernel, hypervisor, features,
// and what other programs did on this host during the run.
package host
