package prims

// SemaphoreMode says which permits a process may release. It is stored in the object when it
// is created.
type SemaphoreMode uint32

const (
	// SemaphoreOwned: a process releases permits that it has acquired, and they come back
	// when it dies. It is the mode of a Semaphore that is created without one.
	SemaphoreOwned SemaphoreMode = iota + 1
	// SemaphoreTransferable: the semaphore only counts. Any process may release, and what a
	// process has acquired does not come back when it dies.
	SemaphoreTransferable
)

// String names the mode.
func (m SemaphoreMode) String() string {
	switch m {
	case 0:
		return "default"
	case SemaphoreOwned:
		return "owned"
	case SemaphoreTransferable:
		return "transferable"
	}
	return "invalid"
}

func (s *Semaphore) mode() SemaphoreMode {
	if s.moves {
		return SemaphoreTransferable
	}
	return SemaphoreOwned
}

// A transferable semaphore counts permits and not their holders. But a permit that is
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
