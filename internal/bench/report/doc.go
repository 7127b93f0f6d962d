// Package report shows results: as tables, as JSON, in the format of Go benchmarks, as CSV, and as a page with
// pictures. It also compares two result files, and gives advice.
//
// A Run has the measurements of a command. A Document is its JSON form, which result files contain. The pages, the
// comparison and the advice use only documents, so a run and its file give the same output. Advice follows rules, one
// for each question. Each rule states its evidence.
package report
