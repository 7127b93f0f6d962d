// Package plan turns what a user asks for into cells, that is, measurements.
//
// Options has the lists that the user gave. Complete checks them against this host. Cells returns all combinations of
// the values in those lists that concern a scenario. Order puts the repetitions into a random order that a seed
// reproduces, and ETA says how long they take. A Preset is a suite that fits a time budget.
package plan
