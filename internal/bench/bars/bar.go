//go:build linux

package bars

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// Bar is one promise of the project about speed: a metric of a subject must not pass a limit. If the bar has a Peer,
// the limit applies to the ratio of the subject's metric to the peer's metric in the same run.
type Bar struct {
	Name     string
	Scenario string
	Subject  string
	Peer     string      // empty: the limit applies to the figure itself
	Cell     bench.Cell  // parameters of the measurement, for the subject and for the peer
	PeerCell *bench.Cell // parameters of the peer's measurement, if they differ
	Metric   string      // empty: the main metric of the scenario
	Limit    float64     // upper limit, or lower limit if more is better; 0: none, the figure is only shown
	AtZero   bool        // the limit is the value 0, which Limit cannot express
	Pooled   float64     // if not 0: compare this quantile of the samples of all repetitions, instead of Metric
	Least    int         // with fewer samples than this in all repetitions together, the verdict is open
	Note     string      // another metric of the subject and the peer, which is only shown
	Needs    *shmsync.Feature
}

// Result is the verdict on a bar in a run, with the figures on which the verdict rests.
type Result struct {
	Name    string          `json:"name"`
	Cell    string          `json:"cell"`
	Metric  string          `json:"metric"`
	Subject string          `json:"subject"`
	Peer    string          `json:"peer,omitempty"`  // empty: Value is no ratio
	Other   string          `json:"other,omitempty"` // parameters of the peer's cell that differ from the subject's
	Limit   float64         `json:"limit"`
	AtLeast bool            `json:"at_least,omitempty"`
	Value   *stats.Interval `json:"value,omitempty"`
	Verdict string          `json:"verdict"`
	Reason  string          `json:"reason,omitempty"`
	Note    string          `json:"note,omitempty"`
}

// These are the verdicts on a bar, that is, on a promised limit of a figure. The verdict is open if the limit lies
// inside the interval of the figure, or if there are too few samples. It is pending if the figure could not be
// measured.
const (
	VerdictPass    = "pass"
	VerdictFail    = "fail"
	VerdictOpen    = "open"
	VerdictPending = "pending"
	VerdictShown   = "shown"
)
