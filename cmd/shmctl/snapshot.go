//go:build linux

package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	_ "github.com/shmsync/shmsync/prims" // the kinds of its objects
)

// snapshot is what was seen of an arena at a time.
type snapshot struct {
	ins          *arenakernel.Inspector
	mono         int64 // CLOCK_MONOTONIC
	info         arenaInfo
	participants []participant
	gone         []deathRecord
	objects      []object
	holds        []hold
	waits        []wait
	damage       error // of the header

	who map[string]int // participants by name
}

// source is where snapshots are taken of.
type source struct {
	ins  *arenakernel.Inspector
	name string
	dump *dumpHeader // of a dump: what was seen when it was made
}

// open opens what is called ARENA.
func open(name string) (*source, error) {
	if s, err := openDump(name); s != nil || err != nil {
		return s, err
	}
	ins, err := arenakernel.Inspect(name)
	if err != nil {
		return nil, err
	}
	return &source{ins: ins, name: name}, nil
}

func (s *source) Close() error { return s.ins.Close() }

// look takes a snapshot.
func (s *source) look() *snapshot {
	snap := &snapshot{ins: s.ins, mono: shmsync.Monotonic(), damage: s.ins.Damage(), who: map[string]int{}}
	if s.dump != nil {
		snap.mono = s.dump.Monotonic
	}
	snap.addParticipants()
	if s.dump != nil {
		snap.asItWas(s.dump)
	}
	snap.addObjects()
	for _, o := range s.ins.DeathRecords() {
		snap.gone = append(snap.gone, deathRecord{o.Name().String(), clean(o.Label), o.PID, timeOf(o.Died), o.Left})
	}
	snap.info = infoOf(s.ins, len(snap.participants))
	if s.dump != nil {
		snap.info.Name, snap.info.Path = clean(s.dump.Name)+" (dump)", s.name
	}
	return snap
}

// again takes another snapshot, of what is there now.
func (s *source) again() (*snapshot, error) {
	if err := s.ins.Refresh(); err != nil {
		return nil, err
	}
	return s.look(), nil
}

func infoOf(ins *arenakernel.Inspector, present int) arenaInfo {
	st := ins.Stats()
	created := ins.Created()
	removed := ""
	if ins.Removed() {
		removed = removedPath(ins.File())
	}
	return arenaInfo{
		Removed: removed,
		Name:    arenaName(ins.Path()), Path: ins.Path(), Size: ins.Size(), Used: st.Reserved << 16,
		Created: timeOf(created), Participants: present, MaxParticipants: ins.MaxParticipants(),
		Objects: st.Objects, Nodes: st.Nodes, Deaths: ins.Deaths(), Counted: ins.Counted(), Health: "ok",
	}
}

func arenaName(path string) string {
	if dir, base := filepath.Split(path); dir == "/dev/shm/" {
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

func (s *snapshot) addParticipants() {
	procs := newProcesses()
	boot := bootID()
	for _, w := range s.ins.Participants() {
		p := participant{
			Name: w.Participant.Name().String(), Slot: w.Slot, Generation: w.Generation, Label: clean(w.Label),
			PID: w.PID, PIDNamespace: w.PIDNS, Life: w.Life, State: w.State, UID: w.UID,
			Joined: timeOf(w.Joined), Died: timeOf(w.Died), Notice: w.Notice, Fenced: w.Fenced,
		}
		if boot == w.BootID || boot == [16]byte{} {
			if proc, ok := procs.find(w.PIDNS, w.PID, w.StartTime); ok {
				p.HostPID, p.Process = proc.pid, proc.stateText()
				switch {
				case w.Life == arenakernel.LifeDead:
				case proc.state == 'T':
					p.Life = lifeStopped
				case proc.state == 't':
					p.Life = lifeTraced
				}
			}
		}
		s.who[p.Name] = len(s.participants)
		s.participants = append(s.participants, p)
	}
}

// Besides those that the arena knows.
const (
	lifeStopped = "stopped"
	lifeTraced  = "traced"
)

func bootID() (id [16]byte) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err == nil {
		hex.Decode(id[:], []byte(strings.ReplaceAll(strings.TrimSpace(string(b)), "-", "")))
	}
	return id
}

func (s *snapshot) addObjects() {
	for _, info := range s.ins.Objects() {
		look := s.ins.Look(info.Object)
		o := object{
			Name: clean(info.String()), Offset: uint64(info.Offset), Kind: clean(info.Kind.String()), Type: typeOf(info.Kind), Version: info.Version,
			Size: info.Size, Created: timeOf(info.Created), OpenBy: []string{}, State: look.State, Policy: look.Policy, Spin: look.Spin,
			Key: look.Key,
		}
		for _, n := range info.OpenBy {
			o.OpenBy = append(o.OpenBy, n.String())
		}
		if look.Err != nil {
			o.Error = errorText(look.Err)
		}
		if look.Died != 0 {
			o.Died = look.Died.String()
		}
		for _, w := range look.Words {
			o.Words = append(o.Words, word{w.Name, fmt.Sprintf("%#x", w.Bits), w.Text})
		}
		if c := look.Counts; c != nil {
			o.Counters = &counters{c.Acquired, c.Contended, c.SpinsPaid, c.Slept, c.Woken, c.Recovered}
		}
		first := len(s.holds)
		for _, h := range look.Holds {
			o.holds = append(o.holds, len(s.holds))
			s.holds = append(s.holds, hold{
				Object: o.Name, Owner: h.Owner.String(), Mode: h.Mode, Count: h.Count, Key: h.Key, AgeNs: s.age(h.Since), Note: h.Note,
				object: len(s.objects),
			})
			s.count(h.Owner, func(p *participant) { p.Holds++ })
		}
		for _, w := range look.Waits {
			o.waits = append(o.waits, len(s.waits))
			v := wait{
				Object: o.Name, Owner: w.Owner.String(), For: w.For, Want: w.Want, Order: w.Stamp, How: w.How, Goroutines: w.Count,
				AgeNs: s.age(w.Since), Any: w.Any, object: len(s.objects), since: w.Since,
			}
			for _, on := range w.On {
				v.on = append(v.on, first+on)
				v.On = append(v.On, s.holds[first+on].Owner)
			}
			s.waits = append(s.waits, v)
			s.count(w.Owner, func(p *participant) { p.Waits++ })
		}
		s.objects = append(s.objects, o)
	}
}

func (s *snapshot) count(n arena.ParticipantID, f func(*participant)) {
	if i, ok := s.who[n.String()]; ok {
		f(&s.participants[i])
	}
}

// age is how long ago something began, if that is known.
func (s *snapshot) age(since int64) *int64 {
	age := s.mono - since
	if since <= 0 || age < 0 {
		return nil // a peer's bytes, or a clock of another boot
	}
	return &age
}

func errorText(err error) string {
	return clean(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// clean makes bytes of a peer fit for a terminal.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0xfffd || r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '?'
		}
		return r
	}, text)
}

// typeOf names a kind as the library does.
func typeOf(k arenakernel.Kind) string {
	if t, ok := map[string]string{
		"MUTX": "Mutex", "RWMX": "RWMutex", "FAIR": "FairMutex", "COHM": "CohortMutex", "SPIN": "SpinLock", "RWSP": "RWSpinLock", "MULT": "MultiLock",
		"COND": "Cond", "SEMA": "Semaphore", "SEQR": "Sequencer", "EVNT": "Event", "FUTX": "Futex", "FUTR": "Future", "WGRP": "WaitGroup",
		"LTCH": "Latch", "BARR": "Barrier", "ONCE": "Once", "QUEU": "Queue", "SIGW": "SignalWaker", "WAIT": "Waitable", "VALU": "Value", "BLOK": "Block",
	}[k.String()]; ok {
		return t
	}
	return "unknown"
}
