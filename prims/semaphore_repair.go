package prims

import (
	"fmt"
	"strings"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
)

func repairSemaphore(a *arena.Arena, o arena.Object, dead arena.Name) {
	if o.Size >= semaphoreBytes(a.MaxParticipants()) {
		repairMonitor(buildSemaphore(a, o, true).mon, dead)
	}
}

func checkSemaphore(a *arena.Arena, o arena.Object) error {
	if o.Size < semaphoreBytes(a.MaxParticipants()) {
		return wrongKind("semaphore.check", o, semaphoreKind, semaphoreVersion)
	}
	s := buildSemaphore(a, o, true)
	if err := checkMutexWords(o, &s.words.mon.latch); err != nil {
		return err
	}
	if free := s.words.free.Load(); free > s.size {
		return s.mon.fail("semaphore.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("%d of %d permits are free", free, s.size))
	}
	return nil
}

func describeSemaphore(a *arena.Arena, o arena.Object) string {
	if o.Size < semaphoreBytes(a.MaxParticipants()) {
		return "too small"
	}
	s := buildSemaphore(a, o, true)
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d permits free", s.words.free.Load(), s.size)
	for _, h := range s.shares {
		if n := h.permits.Load(); n > 0 {
			fmt.Fprintf(&b, ", %v has %d", arena.Name(h.name.Load()&arena.NameMask), n)
		}
	}
	b.WriteString(describeMonitor(s.mon))
	return b.String()
}
