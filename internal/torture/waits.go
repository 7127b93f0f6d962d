//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/prims"
)

// seqJob uses two Sequencers. Goroutine 0 increments the Sequencer in the field steps, and other goroutines wait for
// its next values. No goroutine increments the Sequencer in the field far, and the waits for it are canceled.
type seqJob struct {
	*party
	steps, far *prims.Sequencer
}

func openSeqJob(p *party) (jobWorker, error) {
	steps, err := prims.OpenSequencer(p.a, "seq-steps", nil)
	if err != nil {
		return nil, err
	}
	far, err := prims.OpenSequencer(p.a, "seq-far", nil)
	return &seqJob{p, steps, far}, err
}

func (j *seqJob) turn(g int, r *rand.Rand) error {
	s, counted := j.steps, &j.page.board.counted[0]
	if g == 0 {
		least := counted.Load()
		if v := s.Increment(); v <= least {
			return fmt.Errorf("%d increments, and the value is %d", least, v)
		}
		counted.Add(1)
		return nil
	}
	if r.IntN(8) == 0 {
		return j.cancelled(r)
	}
	token := s.Value() + uint64(r.IntN(4))
	if r.IntN(4) == 0 {
		p := s.WaitAsync(token)
		cancelled := r.IntN(2) == 0 && p.Cancel()
		err := p.Wait()
		if cancelled != errors.Is(err, shmsync.ErrCanceled) || err != nil && !cancelled {
			return fmt.Errorf("cancelled %v, and yet %w", cancelled, err)
		}
		return nil
	}
	err := ends(r, func(ctx context.Context) error { return s.WaitContext(ctx, token) })
	if v := s.Value(); err == nil && v < token {
		return fmt.Errorf("waited for %d, and it is %d", token, v)
	}
	return forgive(err)
}

func (j *seqJob) cancelled(r *rand.Rand) error {
	p, q := j.far.WaitAsync(1<<60+r.Uint64N(8)), j.far.WaitAsync(1<<60)
	j.far.CancelWaiters()
	for _, p := range []*prims.Pending{p, q} {
		if err := p.Wait(); !errors.Is(err, shmsync.ErrCanceled) {
			return fmt.Errorf("cancelled, and yet %w", err)
		}
	}
	return nil
}

func (j *seqJob) rest() error {
	if v, n := j.steps.Value(), j.page.board.counted[0].Load(); v < n {
		return fmt.Errorf("%d increments, and the value is %d", n, v)
	}
	if j.far.Value() != 0 {
		return fmt.Errorf("nobody has incremented it, and it is %d", j.far.Value())
	}
	return leftOver(j.steps.State().Waiting || j.far.State().Waiting, []*prims.Sequencer{j.steps, j.far})
}

// eventJob uses two Events. The Event in the field baton has one token: a waiter takes the token, and then calls Set
// for the next waiter. Goroutine 0 calls Set, too, because a waiter may die while it has the token. Goroutine 0 also
// sets and resets the Event in the field gate, and other goroutines wait for these changes.
type eventJob struct{ gate, baton *prims.Event }

func openEventJob(p *party) (jobWorker, error) {
	gate, err := prims.OpenEvent(p.a, "event-gate", &prims.EventOptions{Mode: prims.EventBidirectional})
	if err != nil {
		return nil, err
	}
	baton, err := prims.OpenEvent(p.a, "event-baton", &prims.EventOptions{Mode: prims.EventAutoReset, InitiallySet: true})
	return &eventJob{gate, baton}, err
}

func (j *eventJob) turn(g int, r *rand.Rand) error {
	if g == 0 {
		j.baton.Set()
		j.gate.Set()
		j.gate.Reset()
		return nil
	}
	switch r.IntN(6) {
	case 0:
		return forgive(ends(r, j.gate.WaitContext))
	case 1:
		return forgive(ends(r, j.gate.WaitResetContext))
	case 2:
		p := j.baton.WaitAsync()
		if r.IntN(2) == 0 && p.Cancel() {
			return nil
		}
		if err := p.Wait(); err != nil {
			return err
		}
		j.baton.Set()
		return nil
	}
	if err := ends(r, j.baton.WaitContext); err != nil {
		return forgive(err)
	}
	j.baton.Set()
	return nil
}

func (j *eventJob) rest() error {
	if st := j.gate.State(); st.Waiting || j.gate.IsSet() {
		return leftOver(true, j.gate)
	}
	j.baton.Set()
	if !j.baton.TryWait() || j.baton.TryWait() {
		return fmt.Errorf("not one token: %v", j.baton)
	}
	j.baton.Set()
	return leftOver(j.baton.State().Waiting, j.baton)
}

// futexJob uses a Futex. Goroutine 0 posts, and other goroutines wait for the next posts.
type futexJob struct {
	*party
	f *prims.Futex
}

func openFutexJob(p *party) (jobWorker, error) {
	f, err := prims.OpenFutex(p.a, "futex", nil)
	return &futexJob{p, f}, err
}

func (j *futexJob) turn(g int, r *rand.Rand) error {
	counted := &j.page.board.counted[1]
	if g == 0 {
		j.f.Post()
		counted.Add(1)
		return nil
	}
	token := j.f.Get() + uint64(r.IntN(3))
	err := ends(r, func(ctx context.Context) error { return j.f.WaitContext(ctx, token) })
	if n := j.f.Get(); err == nil && n < token {
		return fmt.Errorf("waited for %d, and it is %d", token, n)
	}
	return forgive(err)
}

func (j *futexJob) rest() error {
	if n, v := j.page.board.counted[1].Load(), j.f.Get(); v < n {
		return fmt.Errorf("%d posts, and it is %d", n, v)
	}
	return nil
}

// futureJob uses Futures. Goroutine 0 sets their results and resets them. Other goroutines wait for the results, and
// reset a Future whose producer has died.
type futureJob struct{ futures [3]*prims.Future }

func openFutureJob(p *party) (jobWorker, error) {
	j := &futureJob{}
	for i := range j.futures {
		var err error
		if j.futures[i], err = prims.OpenFuture(p.a, fmt.Sprint("future-", i), nil); err != nil {
			return nil, err
		}
	}
	return j, nil
}

func (j *futureJob) turn(g int, r *rand.Rand) error {
	if g == 0 {
		for _, f := range j.futures {
			if f.Claim() {
				for range r.IntN(500) {
				}
				f.Set(syscall.Errno(r.IntN(100)))
			}
			f.Reset()
		}
		return nil
	}
	f := j.futures[r.IntN(len(j.futures))]
	return ends(r, func(ctx context.Context) error {
		errno, err := f.WaitContext(ctx)
		switch {
		case errors.Is(err, shmsync.ErrOwnerDead):
			f.Reset()
			return nil
		case errno >= 100:
			return fmt.Errorf("errno %d", errno)
		}
		return forgive(err)
	})
}

func (j *futureJob) rest() error {
	for _, f := range j.futures {
		if f.State().Waiting {
			return leftOver(true, f)
		}
	}
	return nil
}

// anyJob makes calls that wait for several objects at once, for any of them or for all. In each turn, goroutine 0
// changes one object after the other, so that the waits for these objects end.
type anyJob struct {
	step  *prims.Sequencer
	word  *prims.Futex
	set   *prims.Event
	token *prims.Event
	done  *prims.Future
}

func openAnyJob(p *party) (jobWorker, error) {
	j := &anyJob{}
	var errs [5]error
	j.step, errs[0] = prims.OpenSequencer(p.a, "any-step", nil)
	j.word, errs[1] = prims.OpenFutex(p.a, "any-word", nil)
	j.set, errs[2] = prims.OpenEvent(p.a, "any-set", nil)
	j.token, errs[3] = prims.OpenEvent(p.a, "any-token", &prims.EventOptions{Mode: prims.EventAutoReset})
	j.done, errs[4] = prims.OpenFuture(p.a, "any-done", nil)
	return j, errors.Join(errs[:]...)
}

func (j *anyJob) turn(g int, r *rand.Rand) error {
	if g == 0 {
		j.step.Increment()
		j.word.Post()
		j.set.Set()
		j.set.Reset()
		j.token.Set()
		j.done.Set(0)
		j.done.Reset()
		return nil
	}
	list := []prims.Awaitable{
		j.step.At(j.step.Value() + 1 + uint64(r.IntN(2))), j.word.At(j.word.Get() + 1 + uint64(r.IntN(2))), j.set, j.token, j.done,
	}
	r.Shuffle(len(list), func(a, b int) { list[a], list[b] = list[b], list[a] })
	list = list[:1+r.IntN(len(list))]
	return ends(r, func(ctx context.Context) error {
		if r.IntN(4) == 0 {
			return forgive(prims.WaitAllContext(ctx, list...))
		}
		i, err := prims.WaitAnyContext(ctx, list...)
		if err == nil && (i < 0 || i >= len(list)) {
			return fmt.Errorf("number %d of %d", i, len(list))
		}
		return forgive(err)
	})
}

func (j *anyJob) rest() error {
	if j.step.State().Waiting || j.set.State().Waiting || j.token.State().Waiting || j.done.State().Waiting {
		return leftOver(true, j)
	}
	return nil
}

func (j *anyJob) String() string {
	return fmt.Sprint(j.step, j.word, j.set, j.token, j.done)
}

// condJob uses two Conds. Goroutine 0 adds items and calls Signal for each. Sometimes it also begins a new round and
// calls Broadcast. Other goroutines take items, or wait for a new round.
type condJob struct {
	*party
	l           *prims.Mutex
	items, gone *prims.Cond
}

func openCondJob(p *party) (jobWorker, error) {
	j := &condJob{party: p}
	var err error
	// The data that this lock guards is valid after each store, so after a death the lock can be released without a
	// repair.
	if j.l, err = prims.OpenMutex(p.a, "cond-lock", &prims.MutexOptions{Policy: prims.PolicyRelease}); err != nil {
		return nil, err
	}
	if j.items, err = prims.OpenCond(p.a, "cond-items", j.l, nil); err != nil {
		return nil, err
	}
	j.gone, err = prims.OpenCond(p.a, "cond-gone", j.l, nil)
	return j, err
}

func (j *condJob) turn(g int, r *rand.Rand) error {
	v := &j.page.board.cond
	if g == 0 {
		j.l.Lock()
		defer j.l.Unlock()
		n := 1 + r.IntN(4)
		v.items = min(v.items+int64(n), 100)
		for range n {
			j.items.Signal()
		}
		if r.IntN(3) == 0 {
			v.round++
			j.gone.Broadcast()
		}
		return nil
	}
	return ends(r, func(ctx context.Context) error {
		j.l.Lock()
		defer j.l.Unlock()
		if g%2 == 0 {
			for v.items == 0 {
				if err := j.items.WaitContext(ctx); err != nil {
					return forgive(err)
				}
			}
			v.items--
			return nil
		}
		round := v.round
		if err := j.gone.WaitContext(ctx); err != nil {
			return forgive(err)
		}
		if v.round == round {
			return errors.New("woken before the round was over")
		}
		return nil
	})
}

func (j *condJob) rest() error {
	for _, c := range []*prims.Cond{j.items, j.gone} {
		if st := c.State(); st != (prims.CondState{}) {
			return leftOver(true, c)
		}
	}
	st := j.l.State()
	return leftOver(st.Held || st.Waiting, st)
}

// latchJob uses a Latch that never opens. If a process dies that has claimed counts of this Latch, waits report the
// death. latchJob also creates Latches that open. Their names contain the slot of this participant. So if this
// participant dies, the next participant in the slot deletes the Latches of the dead participant.
type latchJob struct {
	*party
	deep *prims.Latch
	low  atomic.Bool // few counts of deep are left, so this process uses deep no more
}

func openLatchJob(p *party) (jobWorker, error) {
	l, err := prims.OpenLatch(p.a, "latch-deep", 1<<31-1, nil)
	return &latchJob{party: p, deep: l}, err
}

func (j *latchJob) turn(g int, r *rand.Rand) error {
	if r.IntN(256) == 0 && j.deep.State().Count < 1<<20 {
		j.low.Store(true)
	}
	if r.IntN(2) == 0 && !j.low.Load() {
		n := int64(1 + r.IntN(3))
		j.deep.Claim(n)
		for range r.IntN(500) {
		}
		j.deep.CountDown(n + int64(r.IntN(2)))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		err := j.deep.WaitContext(ctx)
		switch {
		case errors.Is(err, shmsync.ErrOwnerDead):
			j.deep.Reset()
		case !gaveUp(err):
			return fmt.Errorf("wait of an endless latch: %w", err)
		}
		return nil
	}
	name := fmt.Sprintf("latch-%d-%d", j.self.Slot(), g)
	j.a.Delete(name) // fails if another process has it open
	own, err := prims.OpenLatch(j.a, name, 3, nil)
	if err != nil {
		return err
	}
	if st := own.State(); st.Count != 3 { // a dead participant has used this Latch
		return own.Close()
	}
	done := make(chan error, 2)
	go func() { done <- own.ArriveAndWaitContext(context.Background(), 1) }()
	go func() { done <- own.WaitContext(context.Background()) }()
	for range r.IntN(500) {
	}
	own.ArriveAndWait(2)
	return errors.Join(<-done, <-done, own.Close())
}

func (j *latchJob) rest() error {
	j.deep.Reset()
	st := j.deep.State()
	return leftOver(st.Own != 0 || st.Waiting || st.Err != nil || st.Count >= st.Size, st)
}
