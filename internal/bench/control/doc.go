// Package control is the memory that the parent shares with its workers, in Go and in C.
//
// A Page has the plan of a cell, the words that its workers wait for, and a Slot for each thread.
// The thread leaves its counts and histograms in its Slot, so they survive a worker that is
// killed. In a Scratch, workers check their subject. peer.h of internal/bench/peers declares the
// same bytes, and both sides assert the offsets.
//
// The package also has what loops on both sides need: a work loop of known length, sleeps until
// an instant, and futex words.
package control
