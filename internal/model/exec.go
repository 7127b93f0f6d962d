package model

// Exec is a thread that does one step: at most one access to shared memory, or
// one system call, and any amount of thinking.
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

// Say says what the step does, for a trace.
func (x *Exec) Say(what string) { x.what = what }

// PC is the step that the thread is at.
func (x *Exec) PC() uint8 { return x.Thread[x.Me].PC }

// Goto makes pc the thread's next step.
func (x *Exec) Goto(pc uint8) { x.Thread[x.Me].PC = pc }

// R gives a register of the thread.
func (x *Exec) R(r int) *uint8 { return &x.Thread[x.Me].R[r] }

// Process is the thread's process.
func (x *Exec) Process() int { return x.system.Threads[x.Me].Process }

// Idle ends a call: the thread forgets everything.
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

// Optional says that this step need not be taken.
func (x *Exec) Optional() { x.optional = true }

// Require says that this step has to be taken some time, although the thread is
// idle: for threads that nobody calls.
func (x *Exec) Require() { x.required = true }

// Disable says that there is no such step.
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

// Update is any other read-modify-write.
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

// All is the number of sleepers to wake when all are meant.
const All = Threads

// Wait is a value that a sleeper expects of a word.
type Wait struct {
	Word  int
	Value uint8
}

// Sleep sleeps while all words have their values and goes on at then, also when
// one has not. quit, if not 0, is where it goes on when its context ends.
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

// SleepDeep is Sleep where nothing disturbs the sleeper, as a channel does not.
func (x *Exec) SleepDeep(then, quit uint8, waits ...Wait) {
	x.Sleep(then, quit, waits...)
	t := &x.Thread[x.Me]
	t.deep = t.Run == Asleep
}

// LifeOf says what has become of a process.
func (x *Exec) LifeOf(process int) Life { return x.Sys.Life[process] }
