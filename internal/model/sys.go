package model

// The sizes of a [Sys]. They are only as large as the largest model needs, because states are hashed and compared
// as a whole. The fields of Sys are in an order that needs no padding between them; otherwise Go would hash and
// compare each field by itself.
const (
	Threads   = 5
	Words     = 12
	Registers = 8
	Ghosts    = 4

	bufferLen = 2
)

// Sys is a state of a [System]: shared memory, threads, and the kernel's queue of sleepers.
type Sys struct {
	// Mem is shared memory. A word is a byte here, and the model defines its meaning.
	Mem [Words]uint8
	// Ghost is memory in which a model keeps what Check has to know about earlier steps. No thread can read it.
	Ghost  [Ghosts]uint8
	Thread [Threads]Thread
	kills  uint16 // how many processes have been killed
	// Life says for each process whether it is alive.
	Life [Threads]Life

	queue [Threads]uint8 // sleepers in the order of arrival, as thread + 1
}

// Thread is the state of one thread.
type Thread struct {
	on uint16 // the words that a sleeper sleeps on, one bit each

	PC   uint8            // the next step of its program
	R    [Registers]uint8 // its registers, which keep values between steps
	Run  Run
	then uint8 // where a sleeper continues when it is woken
	quit uint8 // where a sleeper continues when its context ends; 0 if it has no context
	deep bool  // only a wake ends the sleep; see SleepDeep

	buffered uint8 // number of stores that have not reached memory
	where    [bufferLen]uint8
	value    [bufferLen]uint8
}

// Run says what a thread is doing.
type Run uint8

// The states of a thread.
const (
	Running Run = iota
	Asleep
	Halted // the thread does nothing any more
)

// Life says whether a process is alive.
type Life uint8

// The states of a process.
const (
	Alive Life = iota
	// Condemned means that SIGKILL is pending. Other processes can see the death, but the threads of the process
	// may still do some steps.
	Condemned
	// Gone means that no thread of the process does anything any more.
	Gone
)

// Asleep reports whether a thread sleeps on word w.
func (s *Sys) Asleep(thread, w int) bool {
	t := &s.Thread[thread]
	return t.Run == Asleep && t.on&(1<<w) != 0
}

// load returns the value that thread i sees in word w: its own latest store to w if the store is still in the
// thread's buffer, or else the value in memory.
func (s *Sys) load(i, w int) uint8 {
	t := &s.Thread[i]
	for k := int(t.buffered) - 1; k >= 0; k-- {
		if int(t.where[k]) == w {
			return t.value[k]
		}
	}
	return s.Mem[w]
}

// store puts a store of thread i into the thread's buffer. If the buffer is full, the oldest store in it reaches
// memory first.
func (s *Sys) store(i, w int, v uint8) {
	t := &s.Thread[i]
	if t.buffered == bufferLen {
		s.drainOne(i)
	}
	t.where[t.buffered], t.value[t.buffered] = uint8(w), v
	t.buffered++
}

// drainOne lets the oldest store of thread i reach memory.
func (s *Sys) drainOne(i int) {
	t := &s.Thread[i]
	s.Mem[t.where[0]] = t.value[0]
	copy(t.where[:], t.where[1:])
	copy(t.value[:], t.value[1:])
	t.buffered--
	t.where[t.buffered], t.value[t.buffered] = 0, 0
}

func (s *Sys) drain(i int) {
	for s.Thread[i].buffered > 0 {
		s.drainOne(i)
	}
}

// sleep puts thread i to sleep on several words. The parameter on has a bit for each of these words.
func (s *Sys) sleep(i int, on uint16, then, quit uint8) {
	t := &s.Thread[i]
	t.Run, t.on, t.then, t.quit = Asleep, on, then, quit
	for k := range s.queue {
		if s.queue[k] == 0 {
			s.queue[k] = uint8(i + 1)
			return
		}
	}
}

// rouse takes thread i off the queue of sleepers, so that it continues at step pc.
func (s *Sys) rouse(i int, pc uint8) {
	t := &s.Thread[i]
	t.Run, t.on, t.then, t.quit, t.deep, t.PC = Running, 0, 0, 0, false, pc
	kept := 0
	for _, q := range s.queue {
		if q != 0 && q != uint8(i+1) {
			s.queue[kept] = q
			kept++
		}
	}
	clear(s.queue[kept:])
}

// wake wakes up to n sleepers on word w, in the order of arrival, and returns how many it woke.
func (s *Sys) wake(w, n int) (woken int) {
	queue := s.queue
	for _, q := range queue {
		if q == 0 || woken == n {
			break
		}
		if i := int(q - 1); s.Thread[i].on&(1<<w) != 0 {
			s.rouse(i, s.Thread[i].then)
			woken++
		}
	}
	return woken
}

// halt ends thread i.
func (s *Sys) halt(i int) {
	if s.Thread[i].Run == Asleep {
		s.rouse(i, 0)
	}
	s.Thread[i] = Thread{Run: Halted}
}
