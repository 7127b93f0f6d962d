// Package host describes what the figures of a run depend on: CPU, kernel, hypervisor, features,
// and what others did on this host meanwhile.
package host
