package model

import "encoding/binary"

// Symmetry says that the threads with the numbers below Threads run the same program. Each of them is in a process of
// its own, which has the same number as the thread. States that differ only in the order of these threads are
// explored only once.
type Symmetry struct {
	Threads int
	// More is the number of further threads that all run a second program.
	More int
	// Names are the indexes of registers that contain numbers of threads. The values of these registers do not affect
	// the order of the threads.
	Names []int
	// Rename changes the numbers of threads wherever the state contains them, that is, in memory, in Ghost, and in
	// the registers that Names lists: thread i becomes thread to[i].
	Rename func(s *Sys, to *[Threads]uint8)
}

// reorder sorts the threads of s, so that states become equal if they differ only in the order of the threads. In
// rare cases the result still depends on the old order. Such states are explored more than once.
func (y *Symmetry) reorder(s *Sys) {
	var order [Threads]uint8 // the old numbers of the threads, by new number
	for i := range order {
		order[i] = uint8(i)
	}
	moved := false
	for i := 1; i < y.Threads+y.More; i++ {
		first := 0
		if i >= y.Threads {
			first = y.Threads
		}
		for k := i; k > first && y.before(s, order[k], order[k-1]); k-- {
			order[k], order[k-1] = order[k-1], order[k]
			moved = true
		}
	}
	if !moved {
		return
	}
	old := *s
	var to [Threads]uint8
	for now, was := range order {
		to[was] = uint8(now)
		s.Thread[now], s.Life[now] = old.Thread[was], old.Life[was]
	}
	for k, q := range old.queue {
		if q != 0 {
			s.queue[k] = to[q-1] + 1
		}
	}
	y.Rename(s, &to)
}

// before reports whether thread a is sorted before thread b.
func (y *Symmetry) before(s *Sys, a, b uint8) bool {
	if s.Life[a] != s.Life[b] {
		return s.Life[a] < s.Life[b]
	}
	ra, ka := y.key(&s.Thread[a])
	rb, kb := y.key(&s.Thread[b])
	return ra < rb || ra == rb && ka < kb
}

// key returns two numbers that describe the state of a thread. They leave out the registers that Names lists, and the
// contents of the store buffer.
func (y *Symmetry) key(t *Thread) (registers, rest uint64) {
	r := t.R
	for _, name := range y.Names {
		r[name] = 0
	}
	rest = uint64(t.PC)<<32 | uint64(t.Run)<<24 | uint64(t.on)<<8 | uint64(t.buffered)
	return binary.LittleEndian.Uint64(r[:]), rest
}
