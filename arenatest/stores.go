package arenatest

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/shm"
)

// errNoTrace says that the stores of a function cannot be recorded, because this system does not permit ptrace(2).
var errNoTrace = errors.New("this system does not let a process trace another")

// recording is the stores that a function made into an arena.
type recording struct {
	First   []byte  // the arena before the first store
	Stores  []store // in the order in which they were made
	Steps   int     // number of instructions that were executed
	Err     string
	Refused bool // the first call of ptrace failed, and Err is its error
}

// store is an instruction, or a system call, that changed the arena.
type store struct {
	Changes []change
	Calls   []uintptr // the instruction, and the calls that led to it
}

// change describes new bytes at an offset.
type change struct {
	Offset int64
	Bytes  []byte
}

// mostReports is the largest number of different errors that one call reports.
const mostReports = 3

// KillAtEveryStore calls op once, and records each store that op makes into the arena. Then, for
// each of these stores, it makes a copy of the arena in the state that a kill right after the store
// would leave. It also makes one copy without any of the stores. All participants of a copy are
// dead. A participant with the label "newcomer" joins the copy, and KillAtEveryStore passes it to
// check. check recovers as the program under test does, and returns an error if the state is wrong
// afterwards. Each error fails the test. The report shows the line of code that made the last store
// before the death. Equal errors are reported once. Instead of returning an error, check may call
// t.Fatal, which ends only this call of check.
//
// KillAtEveryStore records the stores of the goroutine that calls op, one machine instruction after
// the other. So it tests a death between any two instructions, including those of this library. A
// system call counts as one store. On a busy machine op took 25 to 37 microseconds for each
// instruction, and a call of check 2 to 6 milliseconds.
//
// KillAtEveryStore needs Linux on amd64, and permission to use ptrace(2). Without these, it skips
// the test.
func (w *World) KillAtEveryStore(op func(), check func(a *arena.Arena) error) {
	w.t.Helper()
	r, err := record(w.seg.File(), op)
	switch {
	case errors.Is(err, errNoTrace):
		w.t.Skipf("needs ptrace(2), for KillAtEveryStore: %v", err)
	case err != nil:
		w.t.Fatalf("arenatest: KillAtEveryStore: %v", err)
	}
	began := time.Now()
	image, failed, told := r.First, 0, map[string]bool{}
	for n := range len(r.Stores) + 1 {
		if n > 0 {
			for _, c := range r.Stores[n-1].Changes {
				copy(image[c.Offset:], c.Bytes)
			}
		}
		err, goes := w.tryImage(image, check)
		if err == nil {
			continue
		}
		failed++
		if what := err.Error(); !told[what] && len(told) < mostReports {
			told[what] = true
			var p *panicked
			if errors.As(err, &p) && len(told) == 1 {
				what += "\n" + p.stack
			}
			w.t.Errorf("arenatest: %s\n\tThis is what a death %s leaves.%s", what, r.place(n), r.last(w, n))
		}
		if !goes {
			w.t.Errorf("arenatest: deaths after later stores were not tried")
			break
		}
	}
	if n := failed - len(told); n > 0 {
		w.t.Errorf("arenatest: after %d more deaths the check fails, with the same errors or others", n)
	}
	w.t.Logf("arenatest: %d deaths, one before and one after each of %d stores, in %d instructions; their checks took %v",
		len(r.Stores)+1, len(r.Stores), r.Steps, time.Since(began).Round(time.Millisecond))
}

// place says in words where the process dies if it dies after n stores.
func (r *recording) place(n int) string {
	if n == 0 {
		return fmt.Sprintf("before the first of %d stores", len(r.Stores))
	}
	return fmt.Sprintf("right after store %d of %d", n, len(r.Stores))
}

// last describes store n, the last one before the death. It returns "" if n is 0.
func (r *recording) last(w *World, n int) string {
	if n == 0 {
		return ""
	}
	s := r.Stores[n-1]
	var parts []string
	for _, c := range s.Changes {
		parts = append(parts, w.placeOf(c))
	}
	return fmt.Sprintf(" The store changed %s:\n%s", strings.Join(parts, " and "), where(s.Calls))
}

// placeOf says which bytes of which object a change concerns.
func (w *World) placeOf(c change) string {
	at, n := arena.Offset(c.Offset), arena.Offset(len(c.Bytes))
	text := func(from arena.Offset) string {
		if n == 1 {
			return fmt.Sprintf("byte %d", uint64(from))
		}
		return fmt.Sprintf("bytes %d to %d", uint64(from), uint64(from+n-1))
	}
	if i, err := arena.Inspect(w.name); err == nil {
		defer i.Close()
		for _, o := range i.Objects() {
			if at >= o.Body && at < o.Body+arena.Offset(o.Size) {
				return fmt.Sprintf("%s of %s %q", text(at-o.Body), cmp.Or(arenakernel.KindName(o.Kind), o.Kind.String()), o.Name)
			}
		}
	}
	return text(at) + " of the arena"
}

// tryImage makes a copy of the arena, with the bytes in image, and runs check in the copy. The second result is false
// if check hangs, or if the memory of the copy cannot be freed.
func (w *World) tryImage(image []byte, check func(a *arena.Arena) error) (err error, goes bool) {
	w.t.Helper()
	seg, err := shm.CreateMemfd("arenatest", int64(len(image)), func(s *shm.Segment) error {
		return putImage(s, image)
	}, nil)
	if err != nil {
		w.t.Fatalf("arenatest: copy the arena: %v", err)
	}
	m, err := newMapping(seg.File(), seg.Size())
	if err != nil {
		w.t.Fatalf("arenatest: copy the arena: %v", err)
	}
	type result struct {
		a   *arena.Arena
		err error
	}
	results := make(chan result, 1)
	go func() {
		r := result{err: errors.New("the check ended its goroutine")}
		defer func() {
			if p := recover(); p != nil {
				r.err = &panicked{p, string(debug.Stack())}
			}
			results <- r
		}()
		if r.a, err = joinApart(seg, m, "newcomer", &w.opts); err != nil {
			r.err = err
			return
		}
		if r.err = check(r.a); r.err == nil {
			if err := r.a.Check(); err != nil {
				r.err = fmt.Errorf("check of the arena: %w", err)
			}
		}
	}()
	end := time.NewTimer(never)
	defer end.Stop()
	select {
	case r := <-results:
		if r.a != nil {
			if err := r.a.Close(); err != nil && !closed(err) && r.err == nil {
				r.err = err
			}
		}
		return r.err, m.retire() == nil
	case <-end.C:
		return fmt.Errorf("the check does not end within %v", never), false
	}
}

// panicked is the error for a check that panicked.
type panicked struct {
	value any
	stack string
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// putImage writes a copy of an arena into a new segment. It skips pages of zeros, so these take no memory.
func putImage(s *shm.Segment, image []byte) error {
	const page = 4096
	var zeroes [page]byte
	b := s.Bytes()
	for at := 0; at < len(image); at += page {
		if from := image[at:min(at+page, len(image))]; string(from) != string(zeroes[:len(from)]) {
			if err := s.Reserve(int64(at), int64(len(from))); err != nil {
				return err
			}
			copy(b[at:], from)
		}
	}
	return nil
}
