package prims

// SemaphoreMode says which permits a process may release. It is stored in the object when it
// is created.
type SemaphoreMode uint32

const (
	// SemaphoreOwned: a process releases permits that it has acquired, and they come back when it
	// dies. It is the default mode.
	SemaphoreOwned SemaphoreMode = iota + 1
	// SemaphoreTransferable: the semaphore only counts. Any process may release, and what a
	// process has acquired does not come back when it dies.
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

// A transferable semaphore counts permits and not their holders. But a permit that is granted to
// a wait has no holder until the waiting process runs, and that process may be stopped and then
// killed. So the share of a participant has two counts: permits is the number of permits that its
// waits were granted, and accepted the number that it has accepted. The difference comes back when
// the participant dies. Both counts only grow while the share belongs to the same participant.

// unaccepted is how many permits the participant of h was granted and has not accepted, after the change
// x. A peer may write anything.
func (s *Semaphore) unaccepted(x *recordedChange, h *semaphoreShare) uint64 {
	if n := int64(h.permitsIn(x) - h.accepted.Load()); n > 0 {
		return min(uint64(n), s.size)
	}
	return 0
}

// takeBackGrants adds to x that the permits are free that the participant of h, which is gone, has not
// accepted.
func (s *Semaphore) takeBackGrants(x *recordedChange, h slotShare) {
	free := s.freeIn(x)
	s.setFree(x, free+min(s.unaccepted(x, h.semaphoreShare), s.size-min(free, s.size)))
	h.setPermits(x, h.accepted.Load())
}
