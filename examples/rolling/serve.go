//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// ledger is the data that both versions share under the same names. It counts how often each job was done. A job
// of a member that is killed may be done twice.
type ledger struct {
	counts *[1024]atomic.Uint32
	done   *prims.Sequencer
}

func openLedger(a *arena.Arena) (l ledger, err error) {
	if l.counts, err = arena.Value[[1024]atomic.Uint32](a, "ledger"); err == nil {
		l.done, err = prims.OpenSequencer(a, "done", nil)
	}
	return l, err
}

func (l ledger) add(id uint32) {
	l.counts[id].Add(1)
	l.done.Increment()
}

// await waits until each of the first n jobs has been done at least once.
func (l ledger) await(n int) error {
	for id := 0; id < n; {
		seen := l.done.Value()
		if l.counts[id].Load() > 0 {
			id++
		} else if err := l.done.Wait(seen + 1); err != nil {
			return err
		}
	}
	return nil
}

// serve does the jobs in the queues until the standard input ends. Each line of the input makes it put jobs into a
// queue.
func serve(name string) error {
	a, err := arena.Open(name, nil)
	if err != nil {
		return err
	}
	defer a.Close()
	l, err := openLedger(a)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s, err := openService(a, l)
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	loops := s.loops(ctx)
	for _, loop := range loops {
		go func() { ended <- loop() }()
	}
	for {
		var from, to uint32
		if _, err := fmt.Fscanln(os.Stdin, &from, &to); err != nil {
			break // the input has ended
		}
		for id := from; id < to; id++ {
			if err := s.put(id); err != nil {
				return err
			}
		}
		fmt.Println(s.total())
	}
	stop()
	for range loops {
		err = errors.Join(err, <-ended)
	}
	return err
}

// work does the jobs in a queue until ctx ends.
func work[T any](ctx context.Context, q *prims.Queue[T], do func(T) error) error {
	for {
		l, err := q.LeaseContext(ctx)
		if errors.Is(err, context.Canceled) {
			return nil
		} else if err != nil {
			return err
		}
		if err := do(l.Item); err != nil {
			return err
		}
		l.Ack()
	}
}
