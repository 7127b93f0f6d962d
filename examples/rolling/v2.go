//go:build linux && v2

package main

import (
	"context"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

type (
	jobV1   struct{ ID uint32 } // the type of a job in version 1
	statsV1 struct{ Done uint64 }

	job   struct{ ID, Cost uint32 }
	stats struct{ Done, Cost uint64 }
)

// service is version 2 of the program. It still does jobs of version 1, but puts only new jobs into a queue.
type service struct {
	ledger ledger
	old    *prims.Queue[jobV1]
	before *prims.Synchronized[statsV1]
	queue  *prims.Queue[job]
	stats  *prims.Synchronized[stats]
}

func openService(a *arena.Arena, l ledger) (s service, err error) {
	s.ledger = l
	if s.old, err = prims.OpenQueue[jobV1](a, "jobs", 64, nil); err != nil {
		return s, err
	}
	if s.before, err = prims.OpenSynchronized(a, "stats", statsV1{}, nil); err != nil {
		return s, err
	}
	if s.queue, err = prims.OpenQueue[job](a, "jobs v2", 64, nil); err != nil {
		return s, err
	}
	s.stats, err = prims.OpenSynchronized(a, "stats v2", stats{}, nil)
	return s, err
}

func (s service) put(id uint32) error { return s.queue.Put(job{id, 1 + id%5}) }

func (s service) loops(ctx context.Context) []func() error {
	return []func() error{
		func() error { return work(ctx, s.old, func(j jobV1) error { return s.do(job{j.ID, 1}) }) },
		func() error { return work(ctx, s.queue, s.do) },
	}
}

func (s service) do(j job) error {
	defer s.ledger.add(j.ID)
	return s.stats.Update(func(v *stats) error { v.Done++; v.Cost += uint64(j.Cost); return nil })
}

func (s service) total() uint64 { return s.before.Load().Done + s.stats.Load().Done }
