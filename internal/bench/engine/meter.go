//go:build linux

package engine

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Meter shows progress and the remaining time on standard error, if that is a terminal. A nil
// meter shows nothing.
type Meter struct{ bar *progressbar.ProgressBar }

// NewMeter returns a meter for a run of this length. It returns nil if quiet is set or standard error is not a
// terminal.
func NewMeter(total time.Duration, quiet bool) *Meter {
	if quiet || !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil
	}
	return &Meter{progressbar.NewOptions64(total.Milliseconds(),
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionThrottle(200*time.Millisecond),
		progressbar.OptionSetWidth(24),
		progressbar.OptionClearOnFinish(),
	)}
}

func (m *Meter) describe(what string) {
	if m != nil {
		m.bar.Describe(clip(what, 48))
	}
}

func (m *Meter) add(d time.Duration) {
	if m != nil {
		m.bar.Add64(d.Milliseconds())
	}
}

func (m *Meter) finish() {
	if m != nil {
		m.bar.Finish()
	}
}

// clip shortens s to n bytes. The caller passes names of measurements, which are ASCII, so clip splits no character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n-2] + ".."
}
