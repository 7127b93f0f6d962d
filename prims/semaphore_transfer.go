package prims

// SemaphoreMode says which permits a process may release. It is fixed when the object is created.
type SemaphoreMode uint32

const (
	// SemaphoreOwned means that a process releases only permits that it has acquired. When the process dies, its
	// permits become free. SemaphoreOwned is the default mode.
	SemaphoreOwned SemaphoreMode = iota + 1
	// SemaphoreTransferable means that the semaphore only counts permits. Any process may release them, and the
	// permits that a process has acquired do not become free when it dies.
	SemaphoreTransferable
)

// String returns the name of the mode.
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

// A transferable semaphore counts permits and does not record who holds them. But a permit that is granted to a
// wait has no holder until the waiting process runs. That process may be stopped and then killed, and the permit
// would be lost. So the share of a participant has two counts. The field permits is the number of permits that the
// participant's waits were granted. The field accepted is the number that the participant has accepted. The
// difference becomes free when the participant dies. Both counts only grow while the share belongs to the same
// participant.

// unaccepted returns how many permits the participant of h was granted and has not accepted, after the change x. A
// peer may have written anything into h, so the result is limited to 0 at least and s.size at most.
func (s *Semaphore) unaccepted(x *recordedChange, h *semaphoreShare) uint64 {
	if n := int64(h.permitsIn(x) - h.accepted.Load()); n > 0 {
		return min(uint64(n), s.size)
	}
	return 0
}

// takeBackGrants extends the change x, so that x makes free the permits that the participant of h was granted and has
// not accepted. This participant is dead or has left the arena.
func (s *Semaphore) takeBackGrants(x *recordedChange, h slotShare) {
	free := s.freeIn(x)
	s.setFree(x, free+min(s.unaccepted(x, h.semaphoreShare), s.size-min(free, s.size)))
	h.setPermits(x, h.accepted.Load())
}
