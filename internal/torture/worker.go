//go:build linux

package torture

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/bench/child"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/shm"
)

// tortureLastWords is the message of a process that panics on purpose.
const tortureLastWords = "torture: this one panics"

// RunWorker is the main function of a process that a torture has started. The role is resident, victim, dump or
// nothing. A process with the role dump writes a description of the arena to log.
func RunWorker(role string, number, lane int, log io.Writer) error {
	if role == "nothing" {
		return nil
	}
	page, err := mapTorturePage(os.NewFile(control.ControlFD, "page"))
	if err != nil {
		return err
	}
	if page.magic != tortureMagic {
		return errors.New("descriptor 3 is no page of a torture")
	}
	label := fmt.Sprintf("%s %d", role, number)
	seg, err := shm.FromFile(os.NewFile(control.SegmentFD, "arena"), nil)
	if err != nil {
		return err
	}
	a, err := arena.FromSegment(seg, &arena.Options{Label: label})
	if err != nil {
		return err
	}
	p := &party{page: page, a: a, self: a.Self(), label: label, worker: &page.worker[number%tortureResidents]}
	switch role {
	case "resident":
		p.resident = true
		err = p.reside(number)
	case "victim":
		err = p.sacrifice(victimOf(page.seed, number, page.only), lane)
	case "dump":
		p.words(log)
	}
	if err != nil {
		page.fault("%s: %v", label, err)
	}
	return errors.Join(err, a.Close())
}

// party is a process that takes part in a torture, as the process itself sees it. The type tortured is the parent's
// view of the process.
type party struct {
	page     *torturePage
	a        *arena.Arena
	self     arena.ParticipantID
	label    string
	resident bool
	worker   *tortureSlot // what this process reports, if it is a resident
	banks    []*txData    // the data of each open job that uses transactions
}

// job is what the processes do with the objects of one primitive. Some goroutines wait, without a time limit, until
// an object changes. Goroutine 0 of each resident makes such changes again and again, so that these waits end.
type job struct {
	name string
	open func(p *party) (jobWorker, error)
}

type jobWorker interface {
	// turn does one operation. It returns an error if the library has broken a promise. The operation may wait until
	// goroutine 0 of a resident makes its next turn.
	turn(g int, r *rand.Rand) error
	// rest is called while no goroutine calls turn, and after all dead processes have been reaped. It returns an
	// error if the state of the objects is not as if no process had died.
	rest() error
}

// open opens the objects of the jobs whose bits are in set.
func (p *party) open(set uint64) (*[tortureJobsMost]jobWorker, error) {
	var ws [tortureJobsMost]jobWorker
	for i, j := range jobs {
		if set&(1<<i) == 0 {
			continue
		}
		w, err := j.open(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", j.name, err)
		}
		ws[i] = w
	}
	return &ws, nil
}

// turn calls the method turn of the job with the index j. It treats a panic of the library as a broken promise.
func turn(j int, w jobWorker, g int, r *rand.Rand) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%s: panic: %v\n%s", jobs[j].name, v, debug.Stack())
		} else if err != nil {
			err = fmt.Errorf("%s: %w", jobs[j].name, err)
		}
	}()
	return w.turn(g, r)
}

// sacrifice is the main function of a victim, which is a process that works at a few jobs until it dies as planned.
func (p *party) sacrifice(v victim, lane int) error {
	ws, err := p.open(v.jobs)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	errs := make(chan error, tortureJobsMost*tortureThreads)
	for j, w := range ws {
		for g := range v.g {
			if w == nil {
				break
			}
			wg.Go(func() {
				r := rand.New(rand.NewPCG(v.seed, uint64(j*tortureThreads+g)))
				for {
					select {
					case <-stop:
						return
					default:
					}
					if err := turn(j, w, g, r); err != nil {
						errs <- err
						return
					}
					if r.IntN(4) == 0 {
						time.Sleep(time.Duration(r.IntN(300)) * time.Microsecond)
					}
				}
			})
		}
	}
	go p.controlThread(&p.page.lane[lane].noise, &p.page.lane[lane].until, nil)
	p.page.lane[lane].ready.Store(uint32(v.number) + 1)
	switch v.outcome {
	case outcomeExec, outcomeExit, outcomePanic, outcomeClose:
	default:
		return <-errs // blocks until the parent kills this process
	}
	select {
	case err := <-errs:
		return err
	case <-time.After(v.delay):
	}
	if v.outcome != outcomeClose {
		now := shmsync.Monotonic()
		p.page.deaths.end(p.page.deaths.begin(now), now+1)
	}
	switch v.outcome {
	case outcomeExec:
		self, err := child.Self()
		if err != nil {
			return err
		}
		program, err := exec.LookPath(self[0])
		if err != nil {
			return err
		}
		return syscall.Exec(program, append(self, "torture-worker", "nothing"), os.Environ())
	case outcomeExit:
		os.Exit(0)
	case outcomePanic:
		go panic(tortureLastWords)
		select {}
	}
	close(stop)
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// reside is the main function of a resident, which is a process that works at all jobs until the torture ends.
func (p *party) reside(worker int) error {
	p.worker.pid.Store(uint32(os.Getpid()))
	ws, err := p.open(p.page.only)
	if err != nil {
		return err
	}
	go p.controlThread(&p.worker.noise, &p.worker.until, &p.worker.counts[tortureThread])
	go p.controlGoroutine()
	for {
		phase := p.page.phase.Load()
		round := phase / 2
		switch {
		case phase == torturePhaseEnd:
			return nil
		case phase%2 == 0 && p.worker.at.Load() != round:
			if err := p.work(ws, round); err != nil {
				return err
			}
			if worker == 0 {
				if err := p.judge(ws, round); err != nil {
					return err
				}
				p.page.judged.Store(round)
			}
		default:
			time.Sleep(200 * time.Microsecond)
		}
	}
}

// work runs the goroutines of a resident until the round ends. Goroutine 0 of each job goes on until the other
// goroutines of all residents have ended, so that none of these waits for ever.
func (p *party) work(ws *[tortureJobsMost]jobWorker, round uint32) error {
	var others, keepers sync.WaitGroup
	errs := make(chan error, tortureJobsMost*tortureThreads)
	for j, w := range ws {
		for g := range tortureThreads {
			if w == nil {
				break
			}
			wg, goesOn := &others, func() bool { return p.page.phase.Load() == 2*round }
			if g == 0 {
				wg, goesOn = &keepers, func() bool { return p.page.phase.Load() == 2*round || !p.calm(round) }
			}
			wg.Go(func() {
				if err := p.turns(j, w, g, goesOn); err != nil {
					p.page.fault("%s: %v", p.label, err)
					errs <- err
				}
			})
		}
	}
	p.worker.at.Store(round)
	others.Wait()
	p.worker.calm.Store(round)
	keepers.Wait()
	p.worker.still.Store(round)
	for p.page.referee.Load() != round {
		time.Sleep(200 * time.Microsecond)
	}
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// calm reports whether each resident has only goroutines with the number 0 left. If so, no goroutine waits for a
// change.
func (p *party) calm(round uint32) bool {
	for s := range p.page.workers {
		if p.page.worker[s].calm.Load() != round {
			return false
		}
	}
	return true
}

// turns runs one goroutine of a resident: it calls turn again and again while goesOn returns true, and measures how
// long each call takes.
func (p *party) turns(j int, w jobWorker, g int, goesOn func() bool) error {
	r := rand.New(rand.NewPCG(rand.Uint64(), uint64(g)))
	most := 8_000
	if g == 0 {
		most = 2_000
	}
	at := &p.worker.since[j][g]
	for goesOn() {
		from := shmsync.Monotonic()
		at.Store(from)
		err := turn(j, w, g, r)
		at.Store(0)
		if err != nil {
			return err
		}
		p.worker.turns[j].Add(1)
		p.measure(j, g, from, shmsync.Monotonic())
		time.Sleep(time.Duration(r.IntN(most)) * time.Microsecond)
	}
	return nil
}

// judge checks that the state of the arena is as if no process had died. No goroutine works meanwhile.
func (p *party) judge(ws *[tortureJobsMost]jobWorker, round uint32) error {
	alone := func() string {
		n := uint32(0)
		for q := range p.a.Participants() {
			if q.State == "joining" && !shmsync.FeatureOFDLock.Have() {
				continue // it may have died: without byte locks, a joiner counts as dead only after 10 s
			}
			if q.State != "live" {
				return fmt.Sprintf("%s is %s", q.Label, q.State)
			}
			n++
		}
		if n != p.page.workers {
			return fmt.Sprintf("%d participants", n)
		}
		return ""
	}
	if what := p.eventuallyNone(alone); what != "" {
		return fmt.Errorf("the dead are not reaped: %s", what)
	}
	sound := func() string {
		if err := p.a.Check(); err != nil {
			return err.Error()
		}
		return ""
	}
	if what := p.eventuallyNone(sound); what != "" {
		return fmt.Errorf("round %d: check: %s", round, what)
	}
	for j, w := range ws {
		if w == nil {
			continue
		}
		rested := func() string {
			if err := w.rest(); err != nil {
				return err.Error()
			}
			return ""
		}
		if what := p.eventuallyNone(rested); what != "" {
			return fmt.Errorf("round %d: %s: at rest: %s", round, jobs[j].name, what)
		}
	}
	balanced := func() string {
		if err := p.balance(); err != nil {
			return err.Error()
		}
		return ""
	}
	if what := p.eventuallyNone(balanced); what != "" {
		return fmt.Errorf("round %d: at rest: %s", round, what)
	}
	st := p.a.Stats()
	p.page.left.objects.Store(st.Objects)
	p.page.left.bytes.Store(st.BytesUsed)
	if n := st.Nodes; n > tortureNodes*uint64(p.page.workers) {
		return fmt.Errorf("round %d: %d wait nodes are in use", round, n)
	}
	return nil
}

// tortureNodes is the largest number of wait nodes per resident that may be in use between two rounds.
const tortureNodes = 3 * tortureThreads * tortureJobsMost

// eventuallyNone calls a function until the result is an empty string, or until a time limit. It returns the last
// result of the function.
func (p *party) eventuallyNone(what func() string) (last string) {
	for end := time.Now().Add(time.Duration(p.page.waitLimit)); ; time.Sleep(time.Millisecond) {
		if last = what(); last == "" || time.Now().After(end) {
			return last
		}
	}
}

// words writes the state of all objects and participants.
func (p *party) words(w io.Writer) {
	fmt.Fprintf(w, "%+v\n", p.a.Stats())
	for q := range p.a.Participants() {
		fmt.Fprintf(w, "participant %v: %s, pid %d, %q\n", arenakernel.Participant(q).Name(), q.State, q.PID, q.Label)
	}
	for o := range p.a.Objects() {
		if text := (*arenakernel.Arena)(p.a).Describe(arenakernel.Object(o)); text != "" {
			fmt.Fprintf(w, "object %q: %s\n", o.Name, text)
		}
	}
}
