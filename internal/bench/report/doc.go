// Package report shows results: as tables, as JSON, in the format of Go benchmarks, as CSV, and as
// a page with pictures. It also compares two result files, and gives advice.
//
// A Run is what a command has measured. A Document is its JSON form, which result files hold. The
// pages, the comparison and the advice read documents alone, so that they say the same of a run
// and of its file. Advice rests on rules, one for each question; a rule names its evidence.
package report
