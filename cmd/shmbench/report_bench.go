//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// writeBench renders the results in the Go benchmark format: a line for each
// repetition, for benchstat. Cells that did not end well become comments.
func writeBench(w io.Writer, r *report) error {
	config := benchConfig(r)
	out := benchfmt.NewWriter(w)
	for _, note := range notes(r) {
		if _, err := fmt.Fprintln(w, "#", note); err != nil {
			return err
		}
	}
	for _, unit := range units(r.Results) {
		better := "lower"
		if betterHigher[unit] {
			better = "higher"
		}
		rec := &benchfmt.UnitMetadata{
			UnitMetadataKey: benchfmt.UnitMetadataKey{Unit: unit, Key: "better"},
			OrigUnit:        unit, Value: better,
		}
		if err := out.Write(rec); err != nil {
			return err
		}
	}
	for _, res := range r.Results {
		_, params, _ := strings.Cut(res.Cell.key(), "/")
		for _, rep := range res.Reps {
			if rep.Status != statusOK {
				continue
			}
			rec := &benchfmt.Result{
				Config: config,
				Name:   benchfmt.Name(res.Cell.Scenario.bench + "/" + params),
				Iters:  max(1, int(rep.Metrics["n"])),
			}
			for _, unit := range benchUnits(rep) {
				rec.Values = append(rec.Values, benchfmt.Value{Value: rep.Metrics[unit], Unit: unit})
			}
			if err := out.Write(rec); err != nil {
				return err
			}
		}
	}
	return nil
}

// notes are what the format has no place for.
func notes(r *report) []string {
	list := []string{strings.Join(r.Command, " ")}
	for _, w := range r.Warnings {
		list = append(list, "warning: "+w)
	}
	for _, res := range r.Results {
		if status, reason := res.status(); status != statusOK {
			list = append(list, fmt.Sprintf("%s: %s: %s", res.Cell.key(), status, strings.ReplaceAll(reason, "\n", " ")))
		}
	}
	return list
}

func benchConfig(r *report) []benchfmt.Config {
	e := r.Env
	var config []benchfmt.Config
	for _, kv := range [][2]string{
		{"goos", e.GOOS}, {"goarch", e.GOARCH}, {"pkg", "github.com/shmsync/shmsync/cmd/shmbench"}, {"cpu", e.CPU},
		{"go", e.Go}, {"kernel", e.Kernel}, {"hypervisor", e.Hypervisor}, {"clocksource", e.Clocksource},
		{"ncpu", strconv.Itoa(e.CPUs)}, {"numa-nodes", strconv.Itoa(e.Nodes)},
		{"load", strconv.FormatFloat(e.Load, 'f', 2, 64)}, {"commit", e.Revision},
		{"seed", strconv.FormatUint(r.Options.Seed, 10)},
	} {
		if kv[1] != "" {
			config = append(config, benchfmt.Config{Key: kv[0], Value: []byte(kv[1]), File: true})
		}
	}
	return config
}

// benchUnits lists a repetition's metrics; the number of operations is the
// iteration count.
func benchUnits(rep *repetition) []string {
	names := make([]string, 0, len(rep.Metrics))
	for k := range rep.Metrics {
		if k != "n" {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	return names
}

func units(results []*result) []string {
	var all []string
	for _, r := range results {
		for _, m := range r.metrics() {
			if m != "n" && !slices.Contains(all, m) {
				all = append(all, m)
			}
		}
	}
	slices.Sort(all)
	return all
}
