package prims

// A Transferable semaphore counts permits and not their holders. But a permit that is
// granted to a wait has no holder until the process of the wait runs: it may be stopped,
// and be killed then. So the share of a participant counts, in permits, the permits that
// its waits were granted and, in fast, the permits that it has accepted. The difference
// comes back when the participant dies. Both only grow, while the share is the same
// participant's.

// unaccepted is how many permits waits of the participant of h were granted that it has
// not accepted. It may accept before the grant is counted; a peer may write anything.
func (s *Semaphore) unaccepted(h *semaphoreShare) uint64 {
	if n := int64(h.permits.Load() - h.fast.Load()); n > 0 {
		return min(uint64(n), s.size)
	}
	return 0
}

// takeBackGrants makes free what the participant of h, which is gone, has not accepted,
// and h the share of name. The queue lock is held.
func (s *Semaphore) takeBackGrants(h *semaphoreShare, name uint64) {
	free := s.pool() // nobody else changes it from here on
	var c change
	c.set(&s.words.free, free+min(s.unaccepted(h), s.size-min(free, s.size)))
	c.set(&h.name, name)
	c.set(&h.permits, h.fast.Load())
	s.mon.commit(&c)
}
