package arenatest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/shm"
)

// The defaults of a World are smaller than those of package arena, so that copies are cheap.
const (
	defaultSize         = 1 << 20
	defaultParticipants = 8
)

// World is an arena that lasts as long as a test. Its methods may be called by several
// goroutines, except for KillAtEveryStore.
type World struct {
	t    testing.TB
	name string
	opts arena.Options
	seg  *shm.Segment // a mapping of the arena that belongs to no participant

	mu     sync.Mutex
	in     []*participant // guarded by: mu; all participants that have joined
	common *mapping       // guarded by: mu; the mapping that the participants of Join share under -race
}

// participant is a participant of a World.
type participant struct {
	a      *arena.Arena
	label  string
	m      *mapping
	victim bool
	killed bool // guarded by: World.mu
}

// worlds counts the Worlds of this process. The count makes their names unique.
var worlds atomic.Uint64

// New makes an arena for the test t, with a unique name and without participants. At the
// end of the test the World reports what the test has left behind (see the package comment), closes
// the participants and removes the arena.
//
// opts applies to the arena and to each participant; nil means the defaults. New uses the fields
// Size (0 means 1 MiB), MaxParticipants (0 means 8), Counted, KernelIO and OnFirst, and no others.
func New(t testing.TB, opts *arena.Options) *World {
	t.Helper()
	w := &World{t: t}
	if opts != nil {
		w.opts = arena.Options{
			Size: opts.Size, MaxParticipants: opts.MaxParticipants, Counted: opts.Counted,
			KernelIO: opts.KernelIO, OnFirst: opts.OnFirst,
		}
	}
	if w.opts.Size == 0 {
		w.opts.Size = defaultSize
	}
	if w.opts.MaxParticipants == 0 {
		w.opts.MaxParticipants = defaultParticipants
	}
	w.name = fmt.Sprintf("arenatest-%d-%d-%s", os.Getpid(), worlds.Add(1), plain(t.Name()))
	seg, err := shm.Create(w.name, w.opts.Size, w.format, nil)
	if err != nil {
		t.Fatalf("arenatest: %v", err)
	}
	w.seg = seg
	t.Cleanup(w.end)
	return w
}

// format makes an arena in a new segment, with the options of the World.
func (w *World) format(seg *shm.Segment) error { return arena.Format(seg, &w.opts) }

// plain returns the part of a test's name that the name of a segment can contain.
func plain(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '.'
	}, name)
	return name[:min(len(name), 80)]
}

// Name returns the name of the arena. Another process may pass this name to [arena.Open].
//
// The process of the test joins with Join, because all calls of arena.Open in one process share one
// participant.
func (w *World) Name() string { return w.name }

// Join joins the arena as one more participant. Errors name it by the label. A test may close the
// participant; otherwise the World does.
//
// Each participant has its own mapping, as a process has. Under the race detector, the participants
// that Join returns share one mapping, so that the detector finds races between them.
func (w *World) Join(label string) *arena.Arena {
	w.t.Helper()
	return w.join(label, false)
}

// JoinVictim is Join for a participant that Kill may kill. The participant has its own mapping even
// under the race detector, which therefore finds only races between the goroutines of this
// participant.
func (w *World) JoinVictim(label string) *arena.Arena {
	w.t.Helper()
	return w.join(label, true)
}

func (w *World) join(label string, victim bool) *arena.Arena {
	w.t.Helper()
	p := &participant{label: label, victim: victim}
	m, err := w.mapping(victim)
	if err == nil {
		p.m = m
		var seg *shm.Segment
		if seg, err = shm.Open(w.name, nil); err == nil {
			p.a, err = joinApart(seg, m, label, &w.opts)
		}
	}
	if err != nil {
		w.t.Fatalf("arenatest: join %q: %v", label, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.in = append(w.in, p)
	return p.a
}

// mapping returns the mapping for a new participant. own means that no other participant may use
// the mapping.
func (w *World) mapping(own bool) (*mapping, error) {
	if own || !sharesMappings {
		return newMapping(w.seg.File(), w.seg.Size())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.common == nil {
		m, err := newMapping(w.seg.File(), w.seg.Size())
		if err != nil {
			return nil, err
		}
		w.common = m
	}
	return w.common, nil
}

// joinApart joins the arena in seg through the mapping m. seg then belongs to the new participant.
func joinApart(seg *shm.Segment, m *mapping, label string, o *arena.Options) (*arena.Arena, error) {
	k := &arenakernel.Options{Label: label, KernelIO: o.KernelIO}
	if o.OnFirst != nil {
		k.OnFirst = func(a *arenakernel.Arena, e arenakernel.Epoch) error {
			x := arena.Epoch{Number: e.Number, Clean: e.Clean, Reboot: e.Reboot}
			for _, p := range e.Dead {
				x.Dead = append(x.Dead, arena.Participant(p))
			}
			return o.OnFirst((*arena.Arena)(a), x)
		}
	}
	a, err := arenakernel.JoinApart(seg, m.bytes, k)
	return (*arena.Arena)(a), err
}

// Kill kills a participant that JoinVictim returned, as kill -9 kills a process: at the point of
// the call, without any clean-up. When Kill returns, the other participants can find out that it is
// dead.
//
// From then on the victim's goroutines work on a private copy of the arena. So the function that
// called Kill may continue and run its deferred calls: their stores do not reach the arena. A
// goroutine of the victim that waits in the arena waits for ever, and still exists at the end of
// the test.
func (w *World) Kill(victim *arena.Arena) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.find(victim)
	switch {
	case p == nil:
		w.t.Fatalf("arenatest: Kill of an arena that is no participant of this World")
	case !p.victim:
		w.t.Fatalf("arenatest: Kill of %q, which joined by Join; a participant that is to be killed joins by JoinVictim", p.label)
	case p.killed:
		return
	}
	p.killed = true
	if err := p.m.makePrivate(w.seg.File()); err != nil {
		w.t.Fatalf("arenatest: kill %q: %v", p.label, err)
	}
	(*arenakernel.Arena)(victim).Kill(w.seg.Bytes())
}

func (w *World) find(a *arena.Arena) *participant { // guarded by: mu
	for _, p := range w.in {
		if p.a == a {
			return p
		}
	}
	return nil
}

// closed reports whether err is the error of closing something a second time.
func closed(err error) bool { return errors.Is(err, shmsync.ErrClosed) }
