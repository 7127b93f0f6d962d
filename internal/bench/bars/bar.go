//go:build linux

package bars

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// Bar is one promise of the project about speed: a metric of a subject, as a
// ratio to that of a peer in the same run or by itself, must not pass a limit.
type Bar struct {
	Name     string
	Scenario string
	Subject  string
	Peer     string      // empty: the figure itself is held against the limit
	Cell     bench.Cell  // the parameters of both
	PeerCell *bench.Cell // the parameters of the peer, where they are others
	Metric   string      // the scenario's own when empty
	Limit    float64     // at most, or at least where more is better; 0: for information
	AtZero   bool        // the limit is 0
	Pooled   float64     // take this quantile of all repetitions' samples instead
	Least    int         // fewer operations than this, in all, do not decide
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
	Other   string          `json:"other,omitempty"` // in what the peer's cell is another than the subject's
	Limit   float64         `json:"limit"`
	AtLeast bool            `json:"at_least,omitempty"`
	Value   *stats.Interval `json:"value,omitempty"`
	Verdict string          `json:"verdict"`
	Reason  string          `json:"reason,omitempty"`
	Note    string          `json:"note,omitempty"`
}

// Verdicts. A bar is open when the limit lies inside the interval and the
// median on its wrong side, and when there are too few samples to tell. It is
// pending when it could not be measured.
const (
	VerdictPass    = "pass"
	VerdictFail    = "fail"
	VerdictOpen    = "open"
	VerdictPending = "pending"
	VerdictShown   = "shown"
)
