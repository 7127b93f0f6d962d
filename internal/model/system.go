package model

// System consists of threads of several processes that run programs over shared words.
type System struct {
	Threads []ThreadSpec
	// Init prepares the first state.
	Init func(*Sys)
	// Kills is how many processes may be killed.
	Kills int
	// With Spurious, sleepers may wake without a reason. With Restart, a sleeper may leave the queue and start its wait
	// again with the old value.
	Spurious, Restart bool
	// Check is the invariant: it returns an error if a state violates it.
	Check func(*Sys) error
	// Done reports whether nothing has to happen any more. It is called only when all stores have reached memory
	// and no thread has anything to do. A thread has nothing to do if it is idle or halted, if its process is dead,
	// or if it sleeps and MaySleep allows that.
	Done func(*Sys) bool
	// MaySleep reports whether the given thread, which sleeps, may sleep for ever, because no wake is due. If
	// MaySleep is nil, no thread may sleep for ever.
	MaySleep func(s *Sys, thread int) bool
	// Canon, if set, replaces a state by a representative of all states that are equivalent to it. So there are
	// fewer states to explore.
	Canon func(*Sys)
	// Symmetry, if set, names threads that run the same program. States that differ only in the order of these
	// threads are explored only once. Traces are then hard to read, because threads change their numbers along the
	// way.
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
	// Mortal says that the process of the thread may be killed.
	Mortal bool
	// Unregistered says that the process of the thread is not registered for membarrier. A membarrier of another
	// process then does not empty the thread's store buffer and, after a kill, does not stop the thread.
	Unregistered bool
}

// Idle is the step number of a thread that is between two calls. A step that begins there is optional.
const Idle = 0

// Explore visits all states of the system.
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
	steps := stepper{System: y}
	spec := Spec[Sys]{
		Init: []Sys{first}, Next: steps.next, Check: y.Check, Done: y.quiet, Show: y.Show, Limit: y.Limit,
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

// quiet reports whether no thread has anything to do, so that Done may be called.
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

// stepper finds the steps of a system. The field to contains the state to which the present step leads. To save
// allocations, all steps use the same fields to and exec.
type stepper struct {
	*System
	to   Sys
	exec Exec
	emit func(Step[Sys])
}

// next calls emit for every step that is possible in s.
func (y *stepper) next(s *Sys, emit func(Step[Sys])) {
	y.emit = emit
	for i := range y.Threads {
		t, name := &s.Thread[i], y.Threads[i].Name
		if t.buffered > 0 {
			y.to = *s
			y.to.drainOne(i)
			y.send(name, "a store reaches memory", false)
		}
		switch t.Run {
		case Running:
			y.run(s, i)
		case Asleep:
			y.disturb(s, i)
		}
	}
	if int(s.kills) < y.Kills {
		y.kill(s)
	}
}

// send emits the step to the state y.to.
func (y *stepper) send(who, what string, optional bool) {
	y.canon(&y.to)
	y.emit(Step[Sys]{To: y.to, By: who, Label: what, Optional: optional})
}

// run sends the steps of the program of thread i.
func (y *stepper) run(s *Sys, i int) {
	spec := &y.Threads[i]
	optional := s.Thread[i].PC == Idle || s.Life[spec.Process] != Alive
	x := &y.exec
	for choice, choices := 0, 1; choice < choices; choice++ {
		y.to = *s
		*x = Exec{Sys: &y.to, Me: i, system: y.System, choice: choice, choices: 1}
		spec.Run(x)
		choices = x.choices
		if !x.disabled {
			y.send(spec.Name, x.what, (optional || x.optional) && !x.required)
		}
	}
}

// disturb sends the steps in which a sleeper wakes, or starts its wait again, although no thread wakes it.
func (y *stepper) disturb(s *Sys, i int) {
	t, name := &s.Thread[i], y.Threads[i].Name
	if y.Spurious && !t.deep {
		y.to = *s
		y.to.rouse(i, t.then)
		y.send(name, "wakes for no reason", true)
	}
	if y.Restart && !t.deep {
		y.to = *s
		y.to.rouse(i, t.PC)
		y.send(name, "is stopped, continued, and begins its wait again", true)
	}
	if t.quit != 0 {
		y.to = *s
		y.to.rouse(i, t.quit)
		y.send(name, "its context ends", true)
	}
}

// kill sends the steps in which processes are killed or end.
func (y *stepper) kill(s *Sys) {
	for p := range Threads {
		y.to = *s
		mortal := false
		for i := range y.Threads {
			if spec := &y.Threads[i]; spec.Process == p && spec.Mortal && s.Life[p] == Alive {
				mortal = true
				if s.Thread[i].Run == Asleep {
					y.to.halt(i)
				}
			}
		}
		if mortal {
			y.to.Life[p] = Condemned
			y.to.kills++
			y.send(y.Threads[y.threadOf(p)].Name, "is killed", true)
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

// membarrier carries out the membarrier call of the thread whose number is me.
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
