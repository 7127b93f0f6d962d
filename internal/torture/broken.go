//go:build linux

package torture

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/shmsync/shmsync/prims"
)

// brokenJobs are jobs that make mistakes on purpose. By these jobs, tests prove that a torture finds broken mutual
// exclusion, lost data, operations that take too long, and waits that never end. A torture has these jobs only if the
// user asks for them.
var brokenJobs = []job{
	{"test:unsaved", openTxJob}, // a worker in C changes data and does not save the old contents; one in Go is correct
	{"test:unseen", func(p *party) (jobWorker, error) { // only victims in C do so; only residents in C check the data
		_, err := openTxJob(p)
		return &brokenJob{party: p, do: func(*rand.Rand) error { return nil }}, err
	}},
	{"test:open", func(p *party) (jobWorker, error) {
		return &brokenJob{party: p, do: func(r *rand.Rand) error { return p.inside(&p.page.board.writers[1], r) }}, nil
	}},
	{"test:stuck", func(p *party) (jobWorker, error) {
		f, err := prims.OpenFutex(p.a, "stuck", nil)
		return &brokenJob{party: p, do: func(*rand.Rand) error { return f.Wait(1) }}, err
	}},
	{"test:slow", func(p *party) (jobWorker, error) {
		return &brokenJob{party: p, do: func(*rand.Rand) error { time.Sleep(400 * time.Millisecond); return nil }}, nil
	}},
	{"test:lossy", func(p *party) (jobWorker, error) {
		return &brokenJob{party: p, do: func(*rand.Rand) error { return nil }, left: errors.New("one item is gone")}, nil
	}},
	{"test:panicky", func(p *party) (jobWorker, error) {
		return &brokenJob{party: p, do: func(*rand.Rand) error { panic("shmsync: no") }}, nil
	}},
}

type brokenJob struct {
	*party
	do   func(r *rand.Rand) error
	left error
}

func (j *brokenJob) turn(_ int, r *rand.Rand) error { return j.do(r) }
func (j *brokenJob) rest() error                    { return j.left }
