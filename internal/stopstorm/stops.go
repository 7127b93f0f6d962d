//go:build linux

package stopstorm

import (
	"time"
)

// stops stops one worker after another at random moments.
func (s *storm) stops() error {
	for n := range s.o.Stops {
		victim := s.r.IntN(len(s.procs))
		if n%controlEvery == 0 {
			if err := s.control(); err != nil {
				return err
			}
		}
		// The next stop begins when each goroutine or thread has completed an operation after the last stop.
		free := s.watchOthers(-1)
		err := s.until("all lanes go on after a stop", func() bool { free.sample(); return free.moved(1) })
		if err != nil {
			return err
		}
		for end := time.Now().Add(time.Duration(s.r.IntN(500)) * time.Microsecond); time.Now().Before(end); {
		}
		if err := s.one(victim); err != nil {
			return err
		}
	}
	return s.sound()
}

// controlEvery is the number of stops between two control measurements, in which no worker is stopped.
const controlEvery = 5

// control does what a stop does, but stops no worker. So it shows how much the machine itself delays the operations.
func (s *storm) control() error {
	w := s.watchOthers(-1)
	err := s.until("all lanes go on while nobody is stopped", func() bool {
		w.sample()
		return time.Since(w.from) >= s.o.Watch && w.lately(w.from.Add(s.o.Watch/2))
	})
	s.observed.control = append(s.observed.control, w.gap)
	return err
}

// one stops the worker victim once, watches the other workers, and continues the victim.
func (s *storm) one(victim int) error {
	p := s.procs[victim]
	if err := s.stop(p); err != nil {
		return err
	}
	defer s.resume(p)
	w := s.watchOthers(victim)
	for {
		nap(300 * time.Microsecond)
		w.sample()
		if still := w.still(s.o.Bound); len(still) != 0 {
			s.judge(victim, still, func() string { return s.standing(victim) })
			break
		}
		if still := w.still(s.o.Bound / excuseAfter); len(still) != 0 && s.excused(victim, still) {
			break // the excuse lasts, because the stopped victim cannot release anything
		}
		// The other workers must make progress in the second half of the stop. Progress in the first half proves
		// nothing, because the stop may take effect late.
		if time.Since(w.from) >= s.o.Watch && w.lately(w.from.Add(s.o.Watch/2)) {
			break
		}
		if err := s.sound(); err != nil {
			return err
		}
	}
	s.observed.gaps = append(s.observed.gaps, w.gap)
	s.res.Stops++
	return nil
}

// quotaPeriod is the period of a CPU quota, as in the file cpu.max.
const quotaPeriod = 100 * time.Millisecond

// throttle stops worker 0 for a part of each period, as a CPU quota does with a process that always wants to run. It
// watches the other workers all the time.
func (s *storm) throttle() error {
	p := s.procs[0]
	runs := quotaPeriod * time.Duration(s.o.Quota) / 100
	bound := 2 * quotaPeriod
	watched := func(w *standstill, d time.Duration) error {
		for end := time.Now().Add(d); time.Now().Before(end); nap(300 * time.Microsecond) {
			w.sample()
			if still := w.still(bound); len(still) != 0 {
				s.judge(0, still, func() string { return s.standing(0) })
				s.observed.gaps = append(s.observed.gaps, w.gap)
				*w = *s.watchOthers(0)
			}
		}
		return s.sound()
	}
	w := s.watchOthers(0)
	for range s.o.Stops {
		if err := s.stop(p); err != nil {
			return err
		}
		if err := watched(w, quotaPeriod-runs); err != nil {
			s.resume(p)
			return err
		}
		s.resume(p)
		if err := watched(w, runs); err != nil {
			return err
		}
		s.res.Stops++
		s.observed.gaps = append(s.observed.gaps, w.gap)
		w.gap = 0
	}
	return s.sound()
}
