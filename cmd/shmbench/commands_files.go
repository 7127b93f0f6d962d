//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/shmsync/shmsync/internal/bench/report"
)

type compareCmd struct {
	Files  []string `arg:"" type:"existingfile" help:"The old result file of --out and the new one. If there are several: the old ones, -- and the new ones."`
	Metric string   `placeholder:"NAME" help:"Compare this metric. Default: the main one of each cell."`
	All    bool     `help:"Also list the cells that did not change."`

	Least float64 `default:"3" placeholder:"PERCENT" help:"Report only changes that are surely larger than this. Default: ${default}."`
}

// Help describes the statistical test of the comparison.
func (*compareCmd) Help() string {
	return `Compare the cells of two result files: the ratio of the figures with its 95 % interval
(Hodges and Lehmann), and whether chance explains it (the U test of Mann and Whitney,
corrected for the number of cells as Benjamini and Hochberg do). A cell is better or worse
if its interval lies wholly beyond --least, and the same if it lies wholly within. Otherwise
it is undecided, and the command says how many repetitions would decide it. Too few
repetitions cannot show any change. If that is so, the last lines say it, and they say how
large a change the comparison would have found.

With -- between several old and several new files, each file counts once, by the median of
its repetitions. Two runs may differ although no repetition of either does.`
}

// read reads a result file. It warns the user if the run that wrote the file did not end.
func (s *session) read(name string) (*report.Document, error) {
	d, err := report.ReadDocument(name)
	if err == nil {
		if missing := d.Missing(); missing != "" {
			fmt.Fprintf(s.stderr, "shmbench: warning: %s: %s\n", name, missing)
		}
	}
	return d, err
}

// sides splits the arguments at "--" into the files before and after the change.
func (c *compareCmd) sides(args []string) (before, after []string, err error) {
	at := slices.Index(args, "--")
	if at < 0 {
		if len(c.Files) != 2 {
			return nil, nil, fmt.Errorf("%d files: want an old and a new one, or several of each with -- between them", len(c.Files))
		}
		return c.Files[:1], c.Files[1:], nil
	}
	n := len(c.Files) - (len(args) - at - 1)
	if n < 1 || n >= len(c.Files) {
		return nil, nil, fmt.Errorf("want old files before the -- and new ones after it")
	}
	return c.Files[:n], c.Files[n:], nil
}

// Run compares two result files.
func (c *compareCmd) Run(s *session) error {
	if c.Least < 0 || c.Least > 1000 {
		return fmt.Errorf("--least %v: want a percentage from 0 to 1000", c.Least)
	}
	old, new, err := c.sides(s.args)
	if err != nil {
		return err
	}
	var before, after []*report.Document
	for i, name := range slices.Concat(old, new) {
		d, err := s.read(name)
		if err != nil {
			return err
		}
		if i < len(old) {
			before = append(before, d)
		} else {
			after = append(after, d)
		}
		for _, w := range report.Differences(&before[0].Env, &d.Env) {
			fmt.Fprintf(s.stderr, "shmbench: warning: %s: %s\n", name, w)
		}
	}
	all := report.CompareFiles(before, after, c.Metric, c.Least/100)
	if len(all.Cells) == 0 {
		return fmt.Errorf("%s and %s have no cell in common that was measured", strings.Join(old, ", "), strings.Join(new, ", "))
	}
	return all.Write(s.stdout, c.All)
}

type exportCmd struct {
	File string `arg:"" type:"existingfile" help:"Result file of --out."`
}

// Help describes the output formats.
func (exportCmd) Help() string {
	return `The value of --format is one of these:

bench: the Go benchmark format, for benchstat.

csv, which is also the default: a line for each metric of each repetition.

hgrm: percentiles of each cell, as the plotters of HdrHistogram read them.

json: the file again, in the form of this version.`
}

// Run converts a result file.
func (c *exportCmd) Run(s *session) error {
	d, err := s.read(c.File)
	if err != nil {
		return err
	}
	format := s.common.Format
	if format == "table" {
		format = "csv"
	}
	return d.Write(s.stdout, format)
}

type recommendCmd struct {
	File string `arg:"" type:"existingfile" help:"Result file of --out."`
}

// Run reads a result file and prints the advice that follows from its figures.
func (c *recommendCmd) Run(s *session) error {
	d, err := s.read(c.File)
	if err != nil {
		return err
	}
	all := report.Recommend(d)
	switch s.common.Format {
	case "table":
		report.WriteAdvice(s.stdout, all)
		return nil
	case "json":
		e := json.NewEncoder(s.stdout)
		e.SetIndent("", "  ")
		return e.Encode(all)
	}
	return fmt.Errorf("advice has no form %q: ask for table or json", s.common.Format)
}

// Help describes the rules by which the command derives advice from figures.
func (*recommendCmd) Help() string {
	return `Each rule says what to do, that no choice is better, or that the file has no measurement for it.
Advice rests on the cells of the file alone. It names them, and gives the effect with its
interval. The interval comes from the ranks of the ratios within each round; if there are
fewer than six ratios, it is their range. A rule needs an effect above its threshold whose
interval does not reach 1. Emulated or noisy hosts get no advice on times.`
}

type reportCmd struct {
	Files []string `arg:"" help:"Result files of --out. If the last name ends in .html, it is the file to write. Default: --out, or standard output."`
}

// Run renders result files as one HTML page.
func (c *reportCmd) Run(s *session) error {
	files, to := c.Files, s.common.Out
	if last := files[len(files)-1]; len(files) > 1 && strings.HasSuffix(last, ".html") {
		files, to = files[:len(files)-1], last
	}
	d, err := report.ReadDocuments(files)
	if err != nil {
		return err
	}
	if to == "" {
		return report.WriteHTML(s.stdout, d)
	}
	return report.CreateHTML(to, d)
}

// withoutSides removes "--" from the arguments of the command compare, because the parser would end the list of files
// there. Other commands keep their arguments.
func withoutSides(args []string) []string {
	if !slices.Contains(args, "compare") {
		return args
	}
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "--" })
}
