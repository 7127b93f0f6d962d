package model

// Exec is a thread that does one step: at most one access to shared memory or one system call, and
// any amount of computation.
type Exec struct {
	*Sys
	Me int

	system          *System
	what            string
	choice, choices int
	optional        bool
	required        bool
	disabled        bool
}

// Say sets the text that a trace shows for this step.
func (x *Exec) Say(what string) { x.what = what }

// PC returns the step at which the thread is.
func (x *Exec) PC() uint8 { return x.Thread[x.Me].PC }

// Goto makes pc the thread's next step.
func (x *Exec) Goto(pc uint8) { x.Thread[x.Me].PC = pc }

// R returns a register of the thread.
func (x *Exec) R(r int) *uint8 { return &x.Thread[x.Me].R[r] }

// Process returns the process of the thread.
func (x *Exec) Process() int { return x.system.Threads[x.Me].Process }

// Idle ends a call. The thread forgets all its registers.
func (x *Exec) Idle() {
	t := &x.Thread[x.Me]
	t.PC, t.R = Idle, [Registers]uint8{}
}

// Choose returns a number from 0 to n-1. The model explores the step once for each
// of them. A step calls Choose at most once.
func (x *Exec) Choose(n int) int {
	x.choices = n
	return x.choice
}

// Optional says that this step need not happen.
func (x *Exec) Optional() { x.optional = true }

// Require says that this step has to happen some time, although the thread is idle. It is for
// threads that run without being called.
func (x *Exec) Require() { x.required = true }

// Disable says that this step is not possible now.
func (x *Exec) Disable() { x.disabled = true }

// Load is a load.
func (x *Exec) Load(w int) uint8 { return x.load(x.Me, w) }

// Store is a plain store.
func (x *Exec) Store(w int, v uint8) { x.store(x.Me, w, v) }

// CAS is a compare-and-swap.
func (x *Exec) CAS(w int, old, to uint8) bool {
	x.drain(x.Me)
	if x.Mem[w] != old {
		return false
	}
	x.Mem[w] = to
	return true
}

// Update is a read-modify-write that applies f.
func (x *Exec) Update(w int, f func(uint8) uint8) {
	x.drain(x.Me)
	x.Mem[w] = f(x.Mem[w])
}

// Membarrier is membarrier(GLOBAL_EXPEDITED).
func (x *Exec) Membarrier() { x.system.membarrier(x.Sys, x.Me) }

// Wake wakes up to n sleepers on w.
func (x *Exec) Wake(w, n int) int {
	x.drain(x.Me)
	return x.wake(w, n)
}

// All is the number to pass to Wake in order to wake all sleepers.
const All = Threads

// Wait is a word, and the value that a sleeper expects in it.
type Wait struct {
	Word  int
	Value uint8
}

// Sleep sleeps while all words have their expected values, and continues at the step then. It also
// continues there if a word has another value. If quit is not 0, the thread continues at the step
// quit when its context ends.
func (x *Exec) Sleep(then, quit uint8, waits ...Wait) {
	x.drain(x.Me)
	var on uint16
	for _, w := range waits {
		if x.Mem[w.Word] != w.Value {
			x.Goto(then)
			return
		}
		on |= 1 << w.Word
	}
	x.sleep(x.Me, on, then, quit)
}

// SleepDeep is Sleep without the effects of Spurious and Restart, like a wait on a Go channel.
func (x *Exec) SleepDeep(then, quit uint8, waits ...Wait) {
	x.Sleep(then, quit, waits...)
	t := &x.Thread[x.Me]
	t.deep = t.Run == Asleep
}

// LifeOf returns whether a process is alive.
func (x *Exec) LifeOf(process int) Life { return x.Sys.Life[process] }
