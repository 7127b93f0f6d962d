// Package control has the memory that the parent shares with its workers, in Go and in C.
//
// A Page has the plan of a measurement, the words on which its workers wait, and a Slot for each thread. A thread
// leaves its counts and histograms in its Slot, so that they survive if the worker is killed. A Scratch is memory in
// which the workers check their subject, the primitive that is measured. The C header peer.h of internal/bench/peers
// declares the same bytes, and both sides assert the offsets.
//
// The package also has what loops on both sides need: a work loop of known length, sleeps until an instant, and futex
// words.
package control
