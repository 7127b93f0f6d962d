//go:build linux

package madeup

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/plan"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// Options returns the options of a short run on two CPUs.
func Options() *plan.Options {
	return &plan.Options{CPUs: []int{0, 1}, Time: time.Millisecond, Count: 3, Kills: 5, Waiters: []int{100, 1000}, Gap: 1500 * time.Microsecond, Seed: 9, Shuffle: true, MaxCells: 5000}
}

// Results returns invented results for all measurements of a short plan. One measurement is skipped, and a repetition
// of another one hung.
func Results() (*plan.Options, []*bench.Result, error) {
	o := Options()
	o.Count, o.Brief, o.Few = 8, true, true
	cells, err := plan.Cells(o, bench.ScenarioNames()...)
	if err != nil {
		return nil, nil, err
	}
	rng := rand.New(rand.NewPCG(3, 3))
	var results []*bench.Result
	for i, c := range cells {
		res := &bench.Result{Cell: c}
		if i == 3 {
			c.Skip = "not today"
		}
		for range o.Count {
			rep := &bench.Repetition{Status: bench.StatusOK, Div: 1, Metrics: map[string]float64{"n": 5000}}
			counts := make([]uint64, stats.HistBuckets)
			for range 5000 {
				stats.Record(counts, 50_000+rng.Int64N(20_000))
			}
			rep.Hist = stats.NewHist(counts)
			for _, m := range append([]string{c.Scenario.Unit}, c.Scenario.Others...) {
				rep.Metrics[m] = 1 + 1e6*rng.Float64()
			}
			if c.Skip == "" {
				res.Reps = append(res.Reps, rep)
			}
		}
		results = append(results, res)
	}
	results[5].Reps[2] = &bench.Repetition{Status: bench.StatusHung, Reason: "no end\nin sight"}
	return o, results, nil
}

// remote matches text by which a page can load something from another file or host.
var remote = regexp.MustCompile(`(?i)(src|href|action|data)\s*=\s*["']?\s*(https?:|//|ftp:)|url\(|@import|<script|<iframe|<object|<embed`)

// CheckPage returns an error if a page or a picture is not well-formed, or if it loads something from another file or
// host.
func CheckPage(page string) error {
	if found := remote.FindAllString(page, -1); len(found) > 0 {
		return fmt.Errorf("the page asks for %q", found)
	}
	depth := 0
	for d := xml.NewDecoder(strings.NewReader(page)); ; {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		switch tok.(type) {
		case xml.StartElement:
			depth++
		case xml.EndElement:
			depth--
		}
	}
	if depth != 0 {
		return fmt.Errorf("%d elements are open at the end of the page", depth)
	}
	return nil
}
