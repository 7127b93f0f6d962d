//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"runtime"
	"syscall"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

const queueJobTickets = 5

// ticket is an item of a queue. The fields Twice and Thrice are multiples of the field ID. So a ticket that is mixed
// from two items can be recognized.
type ticket struct{ ID, Twice, Thrice uint64 }

func ticketOf(id uint64) ticket { return ticket{id, 2 * id, 3 * id} }

func (t ticket) whole() error {
	if t != ticketOf(t.ID) {
		return fmt.Errorf("a torn item: %+v", t)
	}
	return nil
}

// queueJob uses two queues. The queue in the field leased has a fixed set of tickets, which processes lease and give
// back. No ticket may be lost or duplicated. From the queue in the field plain, each item may be taken at most once.
type queueJob struct {
	*party
	leased, plain *prims.Queue[ticket]
}

func openQueueJob(p *party) (jobWorker, error) {
	leased, err := prims.OpenQueue[ticket](p.a, "queue-leased", queueJobTickets, nil)
	if err != nil {
		return nil, err
	}
	plain, err := prims.OpenQueue[ticket](p.a, "queue-plain", 8, nil)
	if err != nil {
		return nil, err
	}
	if p.resident && p.page.board.made.CompareAndSwap(0, 1) { // a resident does not die before it has put all tickets
		for i := range uint64(queueJobTickets) {
			if !leased.TryPut(ticketOf(i)) {
				return nil, errors.New("no room for a ticket")
			}
		}
	}
	return &queueJob{p, leased, plain}, nil
}

func (j *queueJob) turn(g int, r *rand.Rand) error {
	if g == 0 {
		return j.balance(r)
	}
	if r.IntN(2) == 0 {
		return forgive(ends(r, func(ctx context.Context) error { return j.lease(ctx, r) }))
	}
	return forgive(ends(r, func(ctx context.Context) error { return j.move(ctx, g, r) }))
}

// lease gets a ticket by a Lease, checks the ticket, and gives it back by a Nack.
func (j *queueJob) lease(ctx context.Context, r *rand.Rand) error {
	l, err := j.leased.LeaseContext(ctx)
	if err != nil {
		return err
	}
	if err := l.Item.whole(); err != nil || l.Item.ID >= queueJobTickets {
		return fmt.Errorf("not a ticket: %+v, %w", l.Item, err)
	}
	if err := j.inside(&j.page.board.tickets[l.Item.ID], r); err != nil {
		return fmt.Errorf("ticket %d: %w", l.Item.ID, err)
	}
	l.Nack()
	return nil
}

// item returns an item with a number that no other item has.
func (j *queueJob) item() ticket { return ticketOf(j.page.board.item.Add(1)) }

// took returns an error if an item is torn, or was taken before.
func (j *queueJob) took(items ...ticket) error {
	for _, t := range items {
		if err := t.whole(); err != nil {
			return err
		}
		taken := j.page.board.taken[:]
		if taken[t.ID%uint64(len(taken))].Swap(t.ID) == t.ID {
			return fmt.Errorf("item %d came twice", t.ID)
		}
	}
	return nil
}

// move puts items into the plain queue, or takes items out of it. It waits if necessary.
func (j *queueJob) move(ctx context.Context, g int, r *rand.Rand) error {
	if g%2 == 0 {
		if r.IntN(2) == 0 {
			return j.plain.PutContext(ctx, j.item())
		}
		_, err := j.plain.PutBatchContext(ctx, []ticket{j.item(), j.item()})
		return err
	}
	switch r.IntN(3) {
	case 0:
		t, err := j.plain.GetContext(ctx)
		if err != nil {
			return err
		}
		return j.took(t)
	case 1:
		var got [3]ticket
		n, err := j.plain.GetBatchContext(ctx, got[:])
		if err != nil {
			return err
		}
		return j.took(got[:n]...)
	}
	l, err := j.plain.LeaseContext(ctx)
	if err != nil {
		return err
	}
	if err := l.Item.whole(); err != nil {
		return err
	}
	l.Ack()
	return nil
}

// balance keeps the plain queue about half full, so that neither a Get nor a Put waits for ever.
func (j *queueJob) balance(r *rand.Rand) error {
	for range 4 {
		if j.plain.Len() >= j.plain.Cap()/2 {
			if t, ok := j.plain.TryGet(); ok {
				if err := j.took(t); err != nil {
					return err
				}
			}
		} else {
			j.plain.TryPut(j.item())
		}
	}
	return nil
}

func (j *queueJob) rest() error {
	if st := j.leased.State(); st.Queued != queueJobTickets || st.Out != 0 || st.Getting || st.Putting {
		return leftOver(true, st)
	}
	seen := map[uint64]bool{}
	for range queueJobTickets { // check each ticket once
		t, ok := j.leased.TryGet()
		if !ok || t.whole() != nil || seen[t.ID] || t.ID >= queueJobTickets || !j.leased.TryPut(t) {
			return fmt.Errorf("ticket %+v, %v, after %v", t, ok, seen)
		}
		seen[t.ID] = true
	}
	st := j.plain.State()
	if err := leftOver(st.Out != 0 || st.Getting || st.Putting, st); err != nil {
		return err
	}
	for t, ok := j.plain.TryGet(); ok; t, ok = j.plain.TryGet() {
		if err := j.took(t); err != nil {
			return err
		}
	}
	return nil
}

const signalJobQueues = 16 // eight queues for each of two signals

// signalJob schedules and executes the queues of a SignalWaker. A queue of this job is only a count of the items that
// were pushed.
type signalJob struct {
	*party
	w *prims.SignalWaker
}

func openSignalJob(p *party) (jobWorker, error) {
	w, err := prims.OpenSignalWaker(p.a, "signal", nil)
	return &signalJob{p, w}, err
}

// place returns the number of queue k in the SignalWaker.
func (j *signalJob) place(k int) int { return k%2*64 + k/2 }

func (j *signalJob) turn(g int, r *rand.Rand) error {
	if g == 0 {
		for range 1 + r.IntN(3) {
			k := r.IntN(signalJobQueues)
			q := &j.page.board.queues[k]
			n := q.pushed.Add(1)
			j.w.Gate(j.place(k)).Schedule()
			for {
				is := q.told.Load()
				if is >= n || q.told.CompareAndSwap(is, n) {
					break
				}
			}
		}
		if r.IntN(4) == 0 {
			j.w.Release(1)
		}
		if r.IntN(8) == 0 {
			if k, ok := j.w.ReserveTask(); ok {
				j.w.ReleaseTask(k)
			}
		}
		return nil
	}
	j.w.RegisterWorker()
	defer j.w.UnregisterWorker()
	if gate, ok := j.w.Next(j.place(r.IntN(signalJobQueues))); ok {
		return j.execute(gate, r)
	}
	return forgive(ends(r, j.w.AcquireContext))
}

// execute does the work of one queue, and checks that no other participant executes the queue at the same time.
func (j *signalJob) execute(gate prims.Gate, r *rand.Rand) error {
	k := gate.Queue()%64*2 + gate.Queue()/64
	if k >= signalJobQueues {
		return fmt.Errorf("nobody has scheduled queue %d", gate.Queue())
	}
	q := &j.page.board.queues[k]
	if was := arena.ParticipantID(q.inside.Swap(uint32(j.self))); was != 0 && j.a.Current(was) {
		return fmt.Errorf("queue %d is executed by %v, too", gate.Queue(), was)
	}
	n := q.pushed.Load()
	for range r.IntN(100) {
	}
	q.done.Store(max(n, q.done.Load()))
	if was := arena.ParticipantID(q.inside.Swap(0)); was != j.self {
		return fmt.Errorf("queue %d was executed by %v meanwhile", gate.Queue(), was)
	}
	if r.IntN(16) == 0 {
		gate.FinishAndSchedule()
	} else {
		gate.Finish()
	}
	return nil
}

func (j *signalJob) rest() error {
	r := rand.New(rand.NewPCG(1, 1))
	for gate, ok := j.w.Next(0); ok; gate, ok = j.w.Next(0) {
		if err := j.execute(gate, r); err != nil {
			return err
		}
	}
	for k := range j.page.board.queues {
		q := &j.page.board.queues[k]
		if done, told := q.done.Load(), q.told.Load(); done < told {
			return fmt.Errorf("queue %d: %d were scheduled, and it was looked after up to %d: %v", k, told, done, j.w.Gate(j.place(k)))
		}
	}
	h := j.w.Health()
	return leftOver(h.Scheduled != 0 || h.Executing != 0 || h.Reserved != 0 || h.Sleepers != 0 || h.Workers != 0, h)
}

// objectsJob opens and deletes objects of a few names. It also allocates and frees memory. A victim claims a block
// instead of allocating it, because a death must not leave a block allocated.
type objectsJob struct{ *party }

func openObjectsJob(p *party) (jobWorker, error) { return &objectsJob{p}, nil }

func (j *objectsJob) turn(g int, r *rand.Rand) error {
	name := fmt.Sprint("object-", r.IntN(12))
	switch r.IntN(6) {
	case 0:
		if err := j.a.Delete(name); err != nil && !errors.Is(err, syscall.EBUSY) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	case 1:
		off, err := (*arenakernel.Arena)(j.a).ClaimBlock(uint64(1 + r.IntN(2000)))
		if err != nil {
			return err
		}
		runtime.Gosched()
		(*arenakernel.Arena)(j.a).UnclaimBlock(off)
		return nil
	case 2:
		if j.resident && r.IntN(2) == 0 { // a victim that died here would leave the block allocated
			off, err := j.a.Alloc(uint64(1+r.IntN(100_000)), 64)
			if err != nil {
				return err
			}
			runtime.Gosched()
			j.a.Free(off)
			return nil
		}
	}
	m, err := prims.OpenMutex(j.a, name, &prims.MutexOptions{Policy: prims.PolicyRelease})
	if err != nil {
		return err
	}
	if r.IntN(2) == 0 {
		m.Lock()
		//lint:ignore SA2001 the check is that Lock returns
		m.Unlock()
	}
	return m.Close()
}

func (j *objectsJob) rest() error {
	st := j.a.Stats()
	return leftOver(st.BytesUsed > st.Bytes/2, st)
}
