package model

// Exec is what the program of a thread uses to do one step. A step is at most one access to shared memory or one
// system call, and any amount of computation.
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

// PC returns the number of the step that the thread does now.
func (x *Exec) PC() uint8 { return x.Thread[x.Me].PC }

// Goto makes pc the number of the thread's next step.
func (x *Exec) Goto(pc uint8) { x.Thread[x.Me].PC = pc }

// R returns a pointer to register r of the thread.
func (x *Exec) R(r int) *uint8 { return &x.Thread[x.Me].R[r] }

// Process returns the process of the thread.
func (x *Exec) Process() int { return x.system.Threads[x.Me].Process }

// Idle ends a call of the modelled protocol. The thread forgets all its registers.
func (x *Exec) Idle() {
	t := &x.Thread[x.Me]
	t.PC, t.R = Idle, [Registers]uint8{}
}

// Choose returns a number from 0 to n-1. The model explores the step once for each of these numbers. A step may
// call Choose at most once.
func (x *Exec) Choose(n int) int {
	x.choices = n
	return x.choice
}

// Optional says that this step need not happen.
func (x *Exec) Optional() { x.optional = true }

// Require says that this step has to happen at some time, although the thread is idle and steps of an idle thread
// are otherwise optional. It is for threads that run without being called.
func (x *Exec) Require() { x.required = true }

// Disable says that this step is not possible in the present state.
func (x *Exec) Disable() { x.disabled = true }

// Load returns the value of word w, as a load by the thread sees it.
func (x *Exec) Load(w int) uint8 { return x.load(x.Me, w) }

// Store sets word w to v by a plain store.
func (x *Exec) Store(w int, v uint8) { x.store(x.Me, w, v) }

// CAS executes a compare-and-swap: if word w has the value old, CAS sets it to the value to. CAS reports whether it
// has set the word.
func (x *Exec) CAS(w int, old, to uint8) bool {
	x.drain(x.Me)
	if x.Mem[w] != old {
		return false
	}
	x.Mem[w] = to
	return true
}

// Update replaces the value of word w by the result of f, in one atomic step.
func (x *Exec) Update(w int, f func(uint8) uint8) {
	x.drain(x.Me)
	x.Mem[w] = f(x.Mem[w])
}

// Membarrier does what the system call membarrier(GLOBAL_EXPEDITED) does.
func (x *Exec) Membarrier() { x.system.membarrier(x.Sys, x.Me) }

// Wake wakes up to n sleepers on w.
func (x *Exec) Wake(w, n int) int {
	x.drain(x.Me)
	return x.wake(w, n)
}

// All is the number to pass to Wake to wake all sleepers.
const All = Threads

// Wait is a word, and the value that a sleeper expects in it.
type Wait struct {
	Word  int
	Value uint8
}

// Sleep puts the thread to sleep if all words have their expected values. The parameter then is the step at which the
// thread continues when it is woken, or at once if a word has another value. The parameter quit, if it is not 0, is
// the step at which the thread continues when its context ends.
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

// SleepDeep does what Sleep does, but the options Spurious and Restart of the System do not affect the sleeper, as
// with a wait on a Go channel.
func (x *Exec) SleepDeep(then, quit uint8, waits ...Wait) {
	x.Sleep(then, quit, waits...)
	t := &x.Thread[x.Me]
	t.deep = t.Run == Asleep
}

// LifeOf returns whether a process is alive, condemned or gone.
func (x *Exec) LifeOf(process int) Life { return x.Sys.Life[process] }
