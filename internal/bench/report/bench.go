//go:build linux

package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"

	"github.com/shmsync/shmsync/internal/bench"
)

// writeBench renders a document in the Go benchmark format, for benchstat. Each repetition becomes a line. Measurements
// that failed become comments.
func writeBench(w io.Writer, d *Document) error {
	config := benchConfig(d)
	out := benchfmt.NewWriter(w)
	for _, note := range notes(d) {
		if _, err := fmt.Fprintln(w, "#", note); err != nil {
			return err
		}
	}
	for _, unit := range units(d) {
		better := "lower"
		if bench.BetterHigher[unit] {
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
	for i := range d.Cells {
		c := &d.Cells[i]
		_, params, _ := strings.Cut(c.Key, "/")
		for _, rep := range c.Reps {
			if rep.Status != bench.StatusOK {
				continue
			}
			rec := &benchfmt.Result{
				Config: config,
				Name:   benchfmt.Name(benchName(c.Scenario) + "/" + params),
				Iters:  max(1, int(rep.Metrics["n"])),
			}
			for _, unit := range sortedKeys(rep.Metrics) {
				if unit != "n" { // the field Iters has this value
					rec.Values = append(rec.Values, benchfmt.Value{Value: rep.Metrics[unit], Unit: unit})
				}
			}
			if len(rec.Values) == 0 {
				continue
			}
			if err := out.Write(rec); err != nil {
				return err
			}
		}
	}
	return nil
}

// benchName converts the name of a scenario to the form that it has in the name of a benchmark. The scenario may be
// unknown, because a result file can come from another version of this program.
func benchName(scenario string) string {
	if sc := bench.ScenarioByName(scenario); sc != nil {
		return sc.Bench
	}
	if scenario == "" {
		return "Unknown"
	}
	return strings.ToUpper(scenario[:1]) + scenario[1:]
}

// notes returns facts about the run for which the benchmark format has no place.
func notes(d *Document) []string {
	list := []string{strings.Join(d.Command, " ")}
	for _, w := range d.Warnings {
		list = append(list, "warning: "+w)
	}
	for i := range d.Cells {
		if c := &d.Cells[i]; c.Status != bench.StatusOK {
			list = append(list, fmt.Sprintf("%s: %s: %s", c.Key, c.Status, c.Reason))
		}
	}
	for i := range list {
		list[i] = strings.ReplaceAll(list[i], "\n", " ")
	}
	return list
}

func benchConfig(d *Document) []benchfmt.Config {
	e := d.Env
	var config []benchfmt.Config
	for _, kv := range [][2]string{
		{"goos", e.GOOS}, {"goarch", e.GOARCH}, {"pkg", "github.com/shmsync/shmsync/cmd/shmbench"}, {"cpu", e.CPU},
		{"go", e.Go}, {"kernel", e.Kernel}, {"hypervisor", e.Hypervisor}, {"clocksource", e.Clocksource},
		{"ncpu", strconv.Itoa(e.CPUs)}, {"numa-nodes", strconv.Itoa(e.Nodes)},
		{"load", strconv.FormatFloat(e.Load, 'f', 2, 64)}, {"commit", e.Revision},
		{"seed", strconv.FormatUint(d.Seed, 10)},
	} {
		if kv[1] != "" {
			config = append(config, benchfmt.Config{Key: kv[0], Value: []byte(kv[1]), File: true})
		}
	}
	return config
}

// units lists the metrics of all measurements, sorted.
func units(d *Document) []string {
	var all []string
	for i := range d.Cells {
		for _, rep := range d.Cells[i].Reps {
			for m := range rep.Metrics {
				if m != "n" && !slices.Contains(all, m) {
					all = append(all, m)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}
