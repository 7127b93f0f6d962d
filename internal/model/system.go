package model

// System is threads of several processes that run programs over shared words.
type System struct {
	Threads []ThreadSpec
	// Init prepares the first state.
	Init func(*Sys)
	// Kills is how many processes may be killed.
	Kills int
	// Spurious lets sleepers wake without a reason, Restart lets them start their
	// wait again without a look at anything in between.
	Spurious, Restart bool
	// Check is the invariant.
	Check func(*Sys) error
	// Done reports whether nothing has to happen any more. A thread that is ready
	// for another call and one that is halted have nothing to do; Done is asked
	// only when no other thread is left and all stores have reached memory.
	Done func(*Sys) bool
	// MaySleep reports whether nobody owes a wake to the thread, which sleeps. A
	// thread may never sleep for ever if it is nil.
	MaySleep func(s *Sys, thread int) bool
	// Canon, if set, replaces a state by one that behaves the same, so that there
	// are fewer of them.
	Canon func(*Sys)
	// Symmetry, if set, does the same for threads that are alike. Traces are
	// hard to read with it: threads change their names under way.
	Symmetry *Symmetry
	// Show renders the words for a trace.
	Show func(*Sys) string

	Limit int // maximum number of states; 0 means a default
}

// Program does one step of a thread.
type Program func(x *Exec)

// ThreadSpec is a thread of a System.
type ThreadSpec struct {
	Name    string
	Process int // threads of one process die together
	Run     Program
	// Mortal: its process may be killed.
	Mortal bool
	// Unregistered: its process is no target of membarrier. Its stores stay in
	// their buffer as long as they like, and after a kill it is not stopped.
	Unregistered bool
}

// Idle is the PC of a thread that is between two calls. A step from there is
// optional.
const Idle = 0

// Explore goes through all states of the system.
func (y *System) Explore() Result {
	var first Sys
	for i := range Threads {
		if i >= len(y.Threads) {
			first.Thread[i].Run = Halted
		}
	}
	if y.Init != nil {
		y.Init(&first)
	}
	y.canon(&first)
	spec := Spec[Sys]{
		Init: []Sys{first}, Next: y.next, Check: y.Check, Done: y.quiet, Show: y.Show, Limit: y.Limit,
	}
	return spec.Explore()
}

func (y *System) canon(s *Sys) {
	if y.Canon != nil {
		y.Canon(s)
	}
	if y.Symmetry != nil {
		y.Symmetry.reorder(s)
	}
}

// quiet reports whether nobody has anything to do.
func (y *System) quiet(s *Sys) bool {
	for i := range y.Threads {
		t := &s.Thread[i]
		switch {
		case t.buffered > 0:
			return false
		case t.Run == Halted, s.Life[y.Threads[i].Process] != Alive:
		case t.Run == Asleep:
			if y.MaySleep == nil || !y.MaySleep(s, i) {
				return false
			}
		case t.PC != Idle:
			return false
		}
	}
	return y.Done == nil || y.Done(s)
}

// next emits what can happen in s.
func (y *System) next(s *Sys, emit func(Step[Sys])) {
	send := func(to *Sys, who, what string, optional bool) {
		y.canon(to)
		emit(Step[Sys]{To: *to, By: who, Label: what, Optional: optional})
	}
	for i := range y.Threads {
		t, name := &s.Thread[i], y.Threads[i].Name
		if t.buffered > 0 {
			to := *s
			to.drainOne(i)
			send(&to, name, "a store reaches memory", false)
		}
		switch t.Run {
		case Running:
			y.run(s, i, send)
		case Asleep:
			y.disturb(s, i, send)
		}
	}
	if int(s.kills) < y.Kills {
		y.kill(s, send)
	}
}

// run emits the steps of thread i's program.
func (y *System) run(s *Sys, i int, send func(*Sys, string, string, bool)) {
	spec := &y.Threads[i]
	optional := s.Thread[i].PC == Idle || s.Life[spec.Process] != Alive
	for choice, choices := 0, 1; choice < choices; choice++ {
		to := *s
		x := Exec{Sys: &to, Me: i, system: y, choice: choice, choices: 1}
		spec.Run(&x)
		choices = x.choices
		if !x.disabled {
			send(&to, spec.Name, x.what, (optional || x.optional) && !x.required)
		}
	}
}

// disturb emits what can befall a sleeper.
func (y *System) disturb(s *Sys, i int, send func(*Sys, string, string, bool)) {
	t, name := &s.Thread[i], y.Threads[i].Name
	if y.Spurious && !t.deep {
		to := *s
		to.rouse(i, t.then)
		send(&to, name, "wakes for no reason", true)
	}
	if y.Restart && !t.deep {
		to := *s
		to.rouse(i, t.PC)
		send(&to, name, "is stopped, continued, and begins its wait again", true)
	}
	if t.quit != 0 {
		to := *s
		to.rouse(i, t.quit)
		send(&to, name, "its context ends", true)
	}
}

// kill emits the deaths.
func (y *System) kill(s *Sys, send func(*Sys, string, string, bool)) {
	for p := range Threads {
		to, mortal := *s, false
		for i := range y.Threads {
			if spec := &y.Threads[i]; spec.Process == p && spec.Mortal && s.Life[p] == Alive {
				mortal = true
				if s.Thread[i].Run == Asleep {
					to.halt(i)
				}
			}
		}
		if mortal {
			to.Life[p] = Condemned
			to.kills++
			send(&to, y.Threads[y.threadOf(p)].Name, "is killed", true)
		}
	}
}

func (y *System) threadOf(process int) int {
	for i := range y.Threads {
		if y.Threads[i].Process == process {
			return i
		}
	}
	return 0
}

// membarrier is the effect of a membarrier of thread me.
func (y *System) membarrier(s *Sys, me int) {
	s.drain(me)
	for i := range y.Threads {
		spec := &y.Threads[i]
		if spec.Unregistered {
			continue
		}
		s.drain(i)
		if s.Life[spec.Process] == Condemned {
			s.halt(i)
		}
	}
	for i := range y.Threads {
		if spec := &y.Threads[i]; !spec.Unregistered && s.Life[spec.Process] == Condemned {
			s.Life[spec.Process] = Gone
		}
	}
}
