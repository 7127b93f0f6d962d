//go:build linux

package torture

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/shmsync/shmsync/prims"
)

// brokenJobs are wrong on purpose: the tests prove with them that a torture sees broken
// exclusion, losses, long waits, and waits for good. They take part only if they are asked
// for.
var brokenJobs = []job{
	{"test:unsaved", openTxJob}, // sound in Go; a worker in C does not save what it changes
	{"test:unseen", func(p *party) (jobWorker, error) { // victims in C do not save either; only residents in C look
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
