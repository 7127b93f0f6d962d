package diagnose

import (
	"fmt"
	"time"
)

// joinFindings returns a finding if the participant that runs OnFirst is stopped, or if participants wait in Open for it
// and it takes long. If it is stopped and no participant waits, the finding is no trouble yet.
func (s *Snapshot) joinFindings() []Finding {
	first, pending, longest := -1, 0, time.Duration(0)
	now := time.Now()
	for i := range s.Participants {
		switch p := &s.Participants[i]; {
		case s.IsGone(p.Name):
		case p.State == "first":
			first = i
		case p.State == "pending":
			pending++
			if p.Joined != nil {
				longest = max(longest, now.Sub(*p.Joined))
			}
		}
	}
	if first < 0 || s.opts.Dump != nil {
		return nil
	}
	p := &s.Participants[first]
	long, _ := s.limits()
	f := Finding{Trouble: pending > 0, Participants: []string{p.Name}}
	waits := fmt.Sprintf("; %d wait to join", pending)
	switch pending {
	case 0:
		waits = "; no process can join meanwhile"
	case 1:
		waits = "; 1 waits to join"
	}
	if longest > 0 {
		waits += ", for up to " + Short(longest)
	}
	switch {
	case s.isStopped(p.Name):
		f.Kind = StoppedHolder
		f.Text = fmt.Sprintf("%s runs its OnFirst and is %s%s", s.Title(p.Name), p.Process, waits)
		f.continueAdvice(s, p.Name)
	case longest >= long:
		f.Kind = LongHold
		does := "sleeps"
		if s.runs(p.Name) {
			does = "runs"
		}
		if !s.isSeen(p.Name) {
			does = "cannot be seen from here"
		}
		f.Text = fmt.Sprintf("%s runs its OnFirst, and %s%s", s.Title(p.Name), does, waits)
		f.Advice = "if it is stuck, end it; the next process then runs its own OnFirst"
		f.end(s, p.Name)
	default:
		return nil
	}
	return []Finding{f}
}
