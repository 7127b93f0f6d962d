//go:build linux

package bars

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// Bar is one promise of the project about speed: a metric of a subject must not pass a limit. The
// metric is taken as a ratio to that of a peer in the same run, or by itself.
type Bar struct {
	Name     string
	Scenario string
	Subject  string
	Peer     string      // empty: the limit applies to the figure itself
	Cell     bench.Cell  // parameters of both subjects
	PeerCell *bench.Cell // parameters of the peer, if they differ
	Metric   string      // empty: the main metric of the scenario
	Limit    float64     // upper limit, or lower limit if more is better; 0: for information
	AtZero   bool        // the limit is 0
	Pooled   float64     // use this quantile of all repetitions' samples instead
	Least    int         // the bar is not decided with fewer operations than this in all
	Note     string      // a metric that is shown for both
	Needs    *shmsync.Feature
}

// Result is a bar held against a run.
type Result struct {
	Name    string          `json:"name"`
	Cell    string          `json:"cell"`
	Metric  string          `json:"metric"`
	Subject string          `json:"subject"`
	Peer    string          `json:"peer,omitempty"`  // empty: Value is no ratio
	Other   string          `json:"other,omitempty"` // how the peer's cell differs from the subject's
	Limit   float64         `json:"limit"`
	AtLeast bool            `json:"at_least,omitempty"`
	Value   *stats.Interval `json:"value,omitempty"`
	Verdict string          `json:"verdict"`
	Reason  string          `json:"reason,omitempty"`
	Note    string          `json:"note,omitempty"`
}

// Verdicts. A bar is open if the limit lies inside the interval while the median is on the wrong
// side, or if there are too few samples. It is pending if it could not be measured.
const (
	VerdictPass    = "pass"
	VerdictFail    = "fail"
	VerdictOpen    = "open"
	VerdictPending = "pending"
	VerdictShown   = "shown"
)
