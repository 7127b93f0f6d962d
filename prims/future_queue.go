package prims

import (
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// The rules of a Future: all waits end when the state is over, and they change nothing.

func (f *Future) resolve(b *wakes) {
	s := f.load()
	if !s.over() {
		return
	}
	end := s.outcome()
	for w, ok := f.fifo.head(); ok; w, ok = f.fifo.head() {
		if !f.mon.waiting(w) {
			f.detach(w)
			f.mon.releaseNode(w)
			continue
		}
		if f.mon.end(b, w, end.result(), end.aux()) {
			f.account(w)
		}
	}
}

func (f *Future) account(w wait)          { f.mon.account(w, nil) }
func (f *Future) detach(w wait)           { f.fifo.detach(w) }
func (f *Future) requeue(w wait)          { f.fifo.requeue(w) }
func (f *Future) each(do func(wait) bool) { f.fifo.each(do) }
func (f *Future) clear()                  { f.fifo.clear() }

// reap records the death of a producer.
func (f *Future) reap(gone func(arenakernel.ParticipantID) bool) {
	if s := f.load(); s.claimed() && gone(s.producer()) {
		f.abandon(s)
	}
}

func (f *Future) abandon(s futureState) {
	f.store(s.abandon())
	crashpoint.Hit("future.reap.abandoned")
}

func (f *Future) holders(do func(arenakernel.ParticipantID)) {
	if s := f.load(); s.claimed() {
		do(s.producer())
	}
}
