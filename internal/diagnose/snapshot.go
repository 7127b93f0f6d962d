package diagnose

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/shm"
)

// Snapshot is the state of an arena at one time.
type Snapshot struct {
	Time         int64 // when it was taken, by CLOCK_MONOTONIC in ns
	Info         Arena
	Participants []Participant
	Gone         []DeathRecord
	Objects      []Object
	Holds        []Hold
	Waits        []Wait
	Damage       error             // damage of the header
	Usage        arenakernel.Usage // how the memory of the heap is used

	ins  *arenakernel.Inspector
	opts Options
	who  map[string]int // index of each participant, by its name

	unlocked []string // the participants whose processes exist, but have no byte lock on this file

	named    map[string]int      // how many objects are printed with each name; made by Argument
	waitsOf  map[string]*waitsOf // made by behind
	waitsFor struct {            // the waits for one object; made by waitFor
		object  *Object
		byOwner map[string]*Wait
	}
	running map[string]bool // by participant: whether its process was found to be busy; filled by runs
	freezer freezer

	throttler throttler

	elsewhere map[string]*foreignWait // by participant: its wait in another arena, or nil; filled by waitElsewhere
}

// Options say how to take a snapshot.
type Options struct {
	// Older is the age from which a wait counts as a wedge, that is, as a wait that may never end. If Older is 0, the
	// ages are [LongLock] and [LongWork].
	Older time.Duration
	// Dump is set if the snapshot is made from a dump and not from a live arena.
	Dump *Dump
}

// Dump has the facts about an arena that were recorded when a dump was made.
type Dump struct {
	Name         string // name of the arena
	Path         string // path of the dump
	Time         int64  // when it was made, by CLOCK_MONOTONIC in ns
	WithData     bool   // the dump has the data of the users
	Participants []Participant
}

// Look makes a snapshot of the bytes that the Inspector has read.
func Look(ins *arenakernel.Inspector, opts Options) *Snapshot {
	s := &Snapshot{ins: ins, Time: shmsync.Monotonic(), Damage: ins.Damage(), opts: opts, who: map[string]int{}, running: map[string]bool{}, freezer: newFreezer("/proc"), throttler: newThrottler("/proc")}
	s.addParticipants()
	if d := opts.Dump; d != nil {
		s.Time = d.Time
		ins.SetNow(d.Time)
		s.restore(d.Participants)
	}
	s.addObjects()
	for _, o := range ins.DeathRecords() {
		s.Gone = append(s.Gone, DeathRecord{o.Name().String(), Clean(o.Label), o.PID, timeOf(o.Died), o.Left})
	}
	s.Info = infoOf(ins, len(s.Participants))
	if d := opts.Dump; d != nil {
		s.Info.Name, s.Info.Path = Clean(d.Name)+" (dump)", d.Path
	}
	return s
}

// IsDump reports whether the snapshot is made from a dump.
func (s *Snapshot) IsDump() bool { return s.opts.Dump != nil }

// restore sets the participants to the states that they had when the dump was made, because their processes may be gone
// or on another host.
func (s *Snapshot) restore(then []Participant) {
	for _, p := range then {
		if i, ok := s.who[p.Name]; ok {
			p.Holds, p.Waits = 0, 0
			p.Label, p.Process = Clean(p.Label), Clean(p.Process)
			s.Participants[i] = p
		}
	}
}

// Participant returns the participant with that name, or nil if it is not in the arena.
func (s *Snapshot) Participant(name string) *Participant {
	if i, ok := s.who[name]; ok {
		return &s.Participants[i]
	}
	return nil
}

func infoOf(ins *arenakernel.Inspector, present int) Arena {
	st := ins.Stats()
	created := ins.Created()
	removed := ""
	if ins.Removed() {
		removed = removedPath(ins.File())
	}
	epoch, _, clean := ins.Epoch()
	return Arena{
		Removed: removed, Epoch: epoch, Clean: clean,
		Name: Clean(arenaName(ins.Path())), Path: ins.Path(), Size: ins.Size(), Used: st.Reserved << 16,
		Created: timeOf(created), Participants: present, MaxParticipants: ins.MaxParticipants(),
		Objects: st.Objects, Nodes: st.Nodes, Deaths: ins.Deaths(), Counted: ins.Counted(), Health: "ok",
		Layout: arenakernel.LayoutVersion,
	}
}

// arenaName returns the shortest argument that names the arena at a path: the name of a segment, or else the path.
func arenaName(path string) string {
	if dir, base := filepath.Split(path); dir == shm.Dir+"/" && shm.ValidName(base) == nil {
		return base
	}
	return path
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func (s *Snapshot) addParticipants() {
	procs := newProcesses()
	boot := bootID()
	var unnamed []int // the participants whose slots do not say yet which processes they are
	for _, w := range s.ins.Participants() {
		p := Participant{
			Name: w.Participant.Name().String(), Slot: w.Slot, Generation: w.Generation, Label: Clean(w.Label),
			PID: w.PID, PIDNamespace: w.PIDNS, Life: w.Life, State: w.State, UID: w.UID,
			Joined: timeOf(w.Joined), Died: timeOf(w.Died), Notice: w.Notice, Fenced: w.Fenced,
		}
		// This participant is still in its call of Open. It either begins an epoch itself, or waits for the participant
		// that does.
		if _, first, _ := s.ins.Epoch(); p.State == "live" && !s.ins.IsIn(w.Slot) {
			if p.State = "pending"; first == w.Participant.Name() {
				p.State = "first"
			}
		}
		if boot == w.BootID || boot == [16]byte{} {
			if proc, ok := procs.find(w.PIDNS, w.PID, w.StartTime); ok {
				s.identify(&p, proc)
				if w.Unlocked && s.opts.Dump == nil && boot == w.BootID && w.BootID != [16]byte{} && w.StartTime != 0 && proc.exists() {
					p.Life = arenakernel.LifeUnknown
					s.unlocked = append(s.unlocked, p.Name)
				}
			}
		}
		if w.PIDNS == 0 && w.Life == arenakernel.LifeAlive && s.opts.Dump == nil {
			unnamed = append(unnamed, len(s.Participants))
		}
		s.who[p.Name] = len(s.Participants)
		s.Participants = append(s.Participants, p)
	}
	for _, i := range unnamed {
		p := &s.Participants[i]
		if proc, ok := procs.findMember(p.PID, s.ins.File(), s.Participants); ok {
			s.identify(p, proc)
		}
	}
}

// identify records that the process of p is proc.
func (s *Snapshot) identify(p *Participant, proc process) {
	p.HostPID, p.Process = proc.pid, proc.stateText()
	switch {
	case p.Life == arenakernel.LifeDead:
	case proc.state == 'T':
		p.Life = LifeStopped
	case proc.state == 't':
		p.Life = LifeTraced
	case s.opts.Dump == nil && s.freezer.of(proc.pid).frozen:
		p.Life, p.Process = LifeFrozen, LifeFrozen
	}
}

// Values of Participant.Life, in addition to those that package arena defines.
const (
	LifeStopped = "stopped"
	LifeTraced  = "traced"
	LifeFrozen  = "frozen" // by a control group
)

func bootID() (id [16]byte) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err == nil {
		hex.Decode(id[:], []byte(strings.ReplaceAll(strings.TrimSpace(string(b)), "-", "")))
	}
	return id
}

func (s *Snapshot) addObjects() {
	s.Usage = s.ins.Usage()
	for _, info := range s.ins.Objects() {
		look := s.ins.Look(info.Object)
		o := Object{
			Name: Clean(info.String()), Named: info.Name != "", Offset: uint64(info.Offset), Kind: Clean(info.Kind.String()), Type: typeOf(info.Kind), Version: info.Version,
			Size: info.Size, Memory: s.Usage.Objects[info.Offset], Created: timeOf(info.Created), OpenBy: []string{}, State: look.State, Policy: look.Policy, Spin: look.Spin,
			Key: look.Key,
		}
		for _, n := range info.OpenBy {
			o.OpenBy = append(o.OpenBy, n.String())
		}
		if look.Err != nil {
			o.Error = ErrorText(look.Err)
		}
		if look.Died != 0 {
			o.Died = look.Died.String()
		}
		for _, w := range look.Words {
			o.Words = append(o.Words, Word{w.Name, fmt.Sprintf("%#x", w.Bits), w.Text})
		}
		if c := look.Counts; c != nil {
			o.Counters = &Counters{c.Acquired, c.Contended, c.SpinsPaid, c.Slept, c.Woken, c.Recovered}
		}
		first := len(s.Holds)
		for _, h := range look.Holds {
			o.Holds = append(o.Holds, len(s.Holds))
			s.Holds = append(s.Holds, Hold{
				Object: o.Name, Owner: h.Owner.String(), Mode: h.Mode, Count: h.Count, Key: h.Key, AgeNs: s.ageOf(h.Since), AtLeast: h.AtLeast, Note: h.Note,
				ObjectIndex: len(s.Objects),
			})
			s.count(h.Owner, func(p *Participant) { p.Holds++ })
		}
		var before []int
		for _, w := range look.Waits {
			o.Waits = append(o.Waits, len(s.Waits))
			v := Wait{
				Object: o.Name, Owner: w.Owner.String(), For: w.For, Want: w.Want, Order: w.Stamp, How: w.How, Goroutines: w.Count,
				AgeNs: s.ageOf(w.Since), Any: w.Any, ObjectIndex: len(s.Objects), since: w.Since,
			}
			// Successive waits for the same holds may have the same slice w.On. Then both waits share one copy of the
			// lists, which saves memory.
			if len(w.On) > 0 && len(s.Waits) > o.Waits[0] && len(before) == len(w.On) && &before[0] == &w.On[0] {
				last := &s.Waits[len(s.Waits)-1]
				v.OnHolds, v.On = last.OnHolds, last.On
			} else {
				for _, on := range w.On {
					v.OnHolds = append(v.OnHolds, first+on)
					v.On = append(v.On, s.Holds[first+on].Owner)
				}
			}
			before = w.On
			s.Waits = append(s.Waits, v)
			s.count(w.Owner, func(p *Participant) { p.Waits++ })
		}
		s.Objects = append(s.Objects, o)
	}
}

func (s *Snapshot) count(n arenakernel.ParticipantID, f func(*Participant)) {
	if i, ok := s.who[n.String()]; ok {
		f(&s.Participants[i])
	}
}

// ageOf returns how long ago something began, or nil if that is not known.
func (s *Snapshot) ageOf(since int64) *int64 {
	age := s.Time - since
	if since <= 0 || age < 0 {
		return nil // an impossible time, which a peer has written or which is from an earlier boot
	}
	return &age
}

// typeOf returns the name of the library's type for a kind.
func typeOf(k arenakernel.Kind) string { return cmp.Or(arenakernel.KindName(k), "unknown") }
