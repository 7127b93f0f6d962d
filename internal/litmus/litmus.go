package litmus

import "slices"

// Instr is an instruction.
type Instr struct {
	op    op
	word  string
	reg   string // the register that a load sets; "" if its value does not matter
	old   int    // what the word has before a CAS
	value int    // what a store stores, or what an addition adds
	add   bool
	flags flags
}

type op uint8

const (
	opLoad op = iota
	opStore
	opChange // a read-modify-write
	opFence
)

// flags say how an instruction or an event orders the accesses of its thread.
type flags uint8

const (
	acquire    flags = 1 << iota // LDAR, LDAXR, and the load of an LSE instruction; see LSE
	acquirePC                    // LDAPR
	release                      // STLR, STLXR, and the store of an LSE instruction
	single                       // a read-modify-write that is a single LSE instruction
	fullFence                    // DMB ISH
	loadFence                    // DMB ISHLD
	storeFence                   // DMB ISHST
)

// LDR is a plain load of a word to a register.
func LDR(reg, word string) Instr { return Instr{op: opLoad, reg: reg, word: word} }

// LDAR is an atomic load of Go, or one in C with __ATOMIC_SEQ_CST.
func LDAR(reg, word string) Instr { return Instr{op: opLoad, reg: reg, word: word, flags: acquire} }

// LDAPR is a load that a compiler may emit for a load in C with __ATOMIC_ACQUIRE.
func LDAPR(reg, word string) Instr {
	return Instr{op: opLoad, reg: reg, word: word, flags: acquirePC}
}

// STR is a plain store.
func STR(word string, value int) Instr { return Instr{op: opStore, word: word, value: value} }

// STLR is an atomic store of Go, or one in C with __ATOMIC_SEQ_CST or __ATOMIC_RELEASE.
func STLR(word string, value int) Instr {
	return Instr{op: opStore, word: word, value: value, flags: release}
}

// LSE says whether the read-modify-writes of a test are single instructions of the Large System Extensions, such as
// CASAL, or pairs of LDAXR and STLXR. On a CPU with LSE, a Go program executes each read-modify-write as one
// instruction.
type LSE bool

// CAS is a compare-and-swap that succeeds.
func (l LSE) CAS(word string, old, to int) Instr {
	return Instr{op: opChange, word: word, old: old, value: to, flags: l.flags()}
}

// Add is an atomic addition. It sets the register to the value that the word had before the addition.
func (l LSE) Add(reg, word string, n int) Instr {
	return Instr{op: opChange, reg: reg, word: word, value: n, add: true, flags: l.flags()}
}

func (l LSE) flags() flags {
	if l {
		return acquire | release | single
	}
	return acquire | release
}

// The fences.
var (
	DMB   = Instr{op: opFence, flags: fullFence}
	DMBLD = Instr{op: opFence, flags: loadFence}
	DMBST = Instr{op: opFence, flags: storeFence}
)

// Program has the instructions of each thread. Each word is 0 at the beginning.
type Program [][]Instr

// Result maps the name of each register to its value, and the name of each word to its last value.
type Result map[string]int

// event is an access to a word, or a fence.
type event struct {
	thread, at int // at is the place in the thread
	store      bool
	fence      bool
	from       *Instr
	flags      flags
	pair       int // the other event of a read-modify-write; -1 if there is none
}

// execution is a choice of what each load reads and in which order the stores to each word come.
type execution struct {
	events []event
	reads  []int            // for each load, the store from which it reads; -1 if it reads the initial 0
	order  map[string][]int // for each word, its stores in their order
	value  []int
}

// Allowed reports whether the model allows an execution for whose result ok returns true.
func Allowed(p Program, ok func(r Result) bool) bool {
	x := &execution{events: eventsOf(p), order: map[string][]int{}}
	x.reads, x.value = make([]int, len(x.events)), make([]int, len(x.events))
	var words []string
	stores := map[string][]int{}
	for i, e := range x.events {
		if !e.fence && !slices.Contains(words, e.from.word) {
			words = append(words, e.from.word)
		}
		if e.store {
			stores[e.from.word] = append(stores[e.from.word], i)
		}
	}
	return x.orders(words, stores, func() bool {
		return x.sources(0, func() bool { return x.values() && ok(x.result(words)) && x.consistent() })
	})
}

// eventsOf returns the events of all threads.
func eventsOf(p Program) (all []event) {
	for t, code := range p {
		at := 0
		add := func(e event) {
			e.thread, e.at = t, at
			at++
			all = append(all, e)
		}
		for i := range code {
			c := &code[i]
			switch c.op {
			case opFence:
				add(event{fence: true, from: c, flags: c.flags, pair: -1})
			case opLoad, opStore:
				add(event{store: c.op == opStore, from: c, flags: c.flags, pair: -1})
			case opChange:
				add(event{from: c, flags: c.flags &^ release, pair: len(all) + 1})
				add(event{store: true, from: c, flags: c.flags &^ acquire, pair: len(all) - 1})
			}
		}
	}
	return all
}

// orders calls f for each order of the stores to each word, until f returns true.
func (x *execution) orders(words []string, stores map[string][]int, f func() bool) bool {
	if len(words) == 0 {
		return f()
	}
	w := words[0]
	return permutations(stores[w], func(p []int) bool {
		x.order[w] = p
		return x.orders(words[1:], stores, f)
	})
}

// permutations calls f for each permutation of s, until f returns true.
func permutations(s []int, f func(p []int) bool) bool {
	if len(s) == 0 {
		return f(nil)
	}
	for i, first := range s {
		rest := slices.Delete(slices.Clone(s), i, i+1)
		if permutations(rest, func(p []int) bool { return f(append([]int{first}, p...)) }) {
			return true
		}
	}
	return false
}

// sources calls f for each choice of the stores from which the loads read, until f returns true. It chooses stores only
// for the loads with the index i or a higher index.
func (x *execution) sources(i int, f func() bool) bool {
	if i == len(x.events) {
		return f()
	}
	e := x.events[i]
	if e.store || e.fence {
		return x.sources(i+1, f)
	}
	for _, from := range append([]int{-1}, x.order[e.from.word]...) {
		if from != e.pair || from == -1 {
			x.reads[i] = from
			if x.sources(i+1, f) {
				return true
			}
		}
	}
	return false
}

// values computes the value of each event. It returns false if a CAS does not find its old value, or if the value of an
// addition depends on itself.
func (x *execution) values() bool {
	known := make([]bool, len(x.events))
	for progress := true; progress; {
		progress = false
		for i, e := range x.events {
			if known[i] || e.fence {
				continue
			}
			switch {
			case !e.store && x.reads[i] == -1:
				x.value[i] = 0
			case !e.store:
				if !known[x.reads[i]] {
					continue
				}
				x.value[i] = x.value[x.reads[i]]
			case e.pair != -1 && e.from.add:
				if !known[e.pair] {
					continue
				}
				x.value[i] = x.value[e.pair] + e.from.value
			default:
				x.value[i] = e.from.value
			}
			if !e.store && e.pair != -1 && !e.from.add && x.value[i] != e.from.old {
				return false
			}
			known[i], progress = true, true
		}
	}
	for i, e := range x.events {
		if !known[i] && !e.fence {
			return false
		}
	}
	return true
}

func (x *execution) result(words []string) Result {
	r := Result{}
	for i, e := range x.events {
		if !e.store && !e.fence && e.from.reg != "" {
			r[e.from.reg] = x.value[i]
		}
	}
	for _, w := range words {
		r[w] = 0
		if s := x.order[w]; len(s) != 0 {
			r[w] = x.value[s[len(s)-1]]
		}
	}
	return r
}
