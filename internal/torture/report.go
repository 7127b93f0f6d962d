//go:build linux

package torture

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/shmsync/shmsync/internal/bench/stats"
)

// Schema is the version of the format of a Result in JSON.
const Schema = "shmbench-torture/1"

// Result is what a torture has found out.
type Result struct {
	Schema     string            `json:"schema"`
	Seed       uint64            `json:"seed"`
	Only       string            `json:"only"`
	Disabled   string            `json:"disabled,omitempty"` // SHMSYNC_DISABLE
	SecondsRun float64           `json:"seconds"`
	Rounds     int               `json:"rounds"`
	Deaths     int               `json:"deaths"`
	Outcomes   map[string]int64  `json:"outcomes"`
	Doomed     int64             `json:"residents_killed"`
	InC        int64             `json:"victims_in_c"`
	Rollbacks  uint64            `json:"rollbacks_in_c"`    // rollbacks that victims in C began
	Inside     uint64            `json:"died_rolling_back"` // victims in C that died during a rollback
	ResideInC  int               `json:"residents_in_c"`    // number of residents that are programs in C
	DoomedInC  int64             `json:"residents_in_c_killed"`
	TurnsInC   map[string]uint64 `json:"turns_of_residents_in_c,omitempty"`
	RollsInC   uint64            `json:"rollbacks_of_residents_in_c"` // rollbacks that residents in C began
	NoC        string            `json:"no_victims_in_c,omitempty"`   // why no victim is in C
	Turns      map[string]uint64 `json:"turns"`
	WorstNs    map[string]int64  `json:"worst_ns"`
	BoundNs    int64             `json:"bound_ns"`
	Long       uint64            `json:"turns_over_bound"`           // operations longer than the bound, by the wall clock
	Beyond     uint64            `json:"turns_over_bound_unexcused"` // those in Long that stops and CPU waits do not excuse
	Unjudged   uint64            `json:"turns_over_bound_unjudged"`  // those in Beyond that ended while other programs took much CPU time
	Judged     float64           `json:"judged"`                     // share of the time in which other programs took few CPUs
	Wait       spread            `json:"turn_ns"`
	Inherit    spread            `json:"after_first_death_ns"`
	Thread     spread            `json:"control_thread_late_ns"`
	Goroutine  spread            `json:"control_goroutine_late_ns"`
	Objects    uint64            `json:"objects_left"` // number of objects at the last check between two rounds
	Bytes      uint64            `json:"bytes_left"`
	Violations []string          `json:"violations"`
	Dump       string            `json:"dump,omitempty"`
}

// spread is a distribution of durations, in nanoseconds.
type spread struct {
	N                    int64
	P50, P99, P999, Most int64
}

func spreadOf(counts []uint64) spread {
	h := stats.NewHist(counts)
	return spread{h.TotalCount(), h.ValueAtQuantile(50), h.ValueAtQuantile(99), h.ValueAtQuantile(99.9), h.Max()}
}

func (s spread) String() string {
	d := func(ns int64) string { return time.Duration(ns).Round(time.Microsecond).String() }
	return fmt.Sprintf("p50 %s  p99 %s  p99.9 %s  longest %s  of %d", d(s.P50), d(s.P99), d(s.P999), d(s.Most), s.N)
}

func (t *torturer) result(err error) *Result {
	p := t.page
	r := &Result{
		Schema: Schema, Seed: t.seed, Only: jobList(t.only), Disabled: os.Getenv("SHMSYNC_DISABLE"),
		SecondsRun: time.Since(t.start).Seconds(), Rounds: t.rounds, Deaths: t.deaths(), Doomed: t.doomed.Load(),
		InC: t.victimsInC.Load(), Rollbacks: p.inC.rollbacks.Load(), Inside: p.inC.died.Load(), NoC: t.noC,
		DoomedInC: t.doomedInC.Load(), RollsInC: p.inC.rollbacksOfResidents.Load(), TurnsInC: map[string]uint64{},
		Outcomes: map[string]int64{}, Turns: map[string]uint64{}, WorstNs: map[string]int64{}, BoundNs: p.bound,
		Wait: spreadOf(p.histogram(tortureTurns)), Inherit: spreadOf(p.histogram(tortureInherited)),
		Thread: spreadOf(p.histogram(tortureThread)), Goroutine: spreadOf(p.histogram(tortureGoroutine)),
		Objects: p.left.objects.Load(), Bytes: p.left.bytes.Load(), Violations: p.failures(),
	}
	if t.busy.sum != 0 {
		r.Judged = float64(t.busy.judged) / float64(t.busy.sum)
	}
	for f := range outcomes {
		r.Outcomes[f.String()] = t.outcomes[f].Load()
	}
	for s := range p.workers {
		worker, inC := &p.worker[s], t.residesInC(int(s))
		if inC {
			r.ResideInC++
		}
		r.Long += worker.long.Load()
		r.Beyond += worker.beyond.Load()
		r.Unjudged += worker.others.Load()
		for i, j := range jobs {
			if t.only&(1<<i) != 0 {
				r.Turns[j.name] += worker.turns[i].Load()
				if inC && dataJobs&(1<<i) != 0 {
					r.TurnsInC[j.name] += worker.turns[i].Load()
				}
				r.WorstNs[j.name] = max(r.WorstNs[j.name], worker.worst[i].Load())
			}
		}
	}
	if v, ok := err.(interface{ Unwrap() error }); ok {
		err = v.Unwrap()
	}
	if v, ok := err.(*violation); ok {
		r.Violations, r.Dump = append(r.Violations, v.what), v.dump
	}
	return r
}

func (r *Result) write(w io.Writer, format string) error {
	if format == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	fmt.Fprintf(w, "torture: seed %d, %.0f s, %d deaths in %d rounds", r.Seed, r.SecondsRun, r.Deaths, r.Rounds)
	if r.SecondsRun > 0 {
		fmt.Fprintf(w, ", %.0f a second", float64(r.Deaths)/r.SecondsRun)
	}
	fmt.Fprintf(w, "\n  ")
	for f := range outcomes {
		fmt.Fprintf(w, "%s %d  ", f, r.Outcomes[f.String()])
	}
	fmt.Fprintf(w, "residents %d\n", r.Doomed)
	if r.InC != 0 {
		fmt.Fprintf(w, "  in C: %d victims, which began to roll back %d times; %d died in that\n", r.InC, r.Rollbacks, r.Inside)
	}
	if r.ResideInC != 0 {
		sum := uint64(0)
		for _, n := range r.TurnsInC {
			sum += n
		}
		fmt.Fprintf(w, "  in C: %d of the residents, killed %d times, which took %d turns and began to roll back %d times\n", r.ResideInC, r.DoomedInC, sum, r.RollsInC)
	}
	fmt.Fprintf(w, "  turns of residents      %v\n", r.Wait)
	fmt.Fprintf(w, "  after a death in them   %v\n", r.Inherit)
	fmt.Fprintf(w, "  a thread beside, late   %v\n", r.Thread)
	fmt.Fprintf(w, "  a goroutine, late       %v\n", r.Goroutine)
	fmt.Fprintf(w, "  left at rest: %d objects, %d bytes\n", r.Objects, r.Bytes)
	fmt.Fprintf(w, "  longer than %v: %d, of which %d neither while somebody was stopped nor for want of a CPU\n", time.Duration(r.BoundNs), r.Long, r.Beyond)
	if r.Unjudged != 0 || r.Judged < 0.99 {
		fmt.Fprintf(w, "  others took CPUs for %.0f %% of the time: %d of those are not judged\n", 100*(1-r.Judged), r.Unjudged)
	}
	for i, j := range jobs {
		if n, ok := r.Turns[j.name]; ok {
			fmt.Fprintf(w, "  %-10s %9d turns, longest %v", j.name, n, time.Duration(r.WorstNs[j.name]).Round(time.Microsecond))
			if i%2 == 1 {
				fmt.Fprintln(w)
			}
		}
	}
	_, err := fmt.Fprintf(w, "\n  violations: %d\n", len(r.Violations))
	return err
}
