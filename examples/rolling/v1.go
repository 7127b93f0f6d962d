//go:build linux && !v2

package main

import (
	"context"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

type (
	job   struct{ ID uint32 }
	stats struct{ Done uint64 }
)

// service is version 1 of the program.
type service struct {
	ledger ledger
	queue  *prims.Queue[job]
	stats  *prims.Synchronized[stats]
}

func openService(a *arena.Arena, l ledger) (s service, err error) {
	s.ledger = l
	if s.queue, err = prims.OpenQueue[job](a, "jobs", 64, nil); err != nil {
		return s, err
	}
	s.stats, err = prims.OpenSynchronized(a, "stats", stats{}, nil)
	return s, err
}

func (s service) put(id uint32) error { return s.queue.Put(job{id}) }

func (s service) loops(ctx context.Context) []func() error {
	return []func() error{func() error { return work(ctx, s.queue, s.do) }}
}

func (s service) do(j job) error {
	defer s.ledger.add(j.ID)
	return s.stats.Update(func(v *stats) error { v.Done++; return nil })
}

func (s service) total() uint64 { return s.stats.Load().Done }
