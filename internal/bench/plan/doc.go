// Package plan turns what a user asks for into cells, that is, measurements.
//
// Options are the lists of the user. Complete checks them against this host. Cells returns all combinations of the
// values in those lists that concern a scenario. Order puts the repetitions into a random order that a seed reproduces,
// and ETA says how long they take. A Preset is a suite that fits a time budget.
package plan
