//go:build linux

package main

import (
	"encoding/json"
	"io"
	"time"
)

// schema names the fields of the documents below. Within one version fields are only
// added.
const schema = "shmctl/1"

// document is what --json prints; each command fills in its part. Times are RFC 3339,
// ages nanoseconds; what nobody knows is null.
type document struct {
	Schema       string        `json:"schema"`
	Command      string        `json:"command"`
	Time         time.Time     `json:"time"`
	Arenas       []arenaInfo   `json:"arenas,omitempty"`
	Arena        *arenaInfo    `json:"arena,omitempty"`
	Participants []participant `json:"participants,omitempty"`
	Gone         []deathRecord `json:"gone,omitempty"`
	Objects      []object      `json:"objects,omitempty"`
	Holds        []hold        `json:"holds,omitempty"`
	Waits        []wait        `json:"waits,omitempty"`
	Edges        []edge        `json:"edges,omitempty"`
	Findings     []finding     `json:"findings,omitempty"`
	Damage       []string      `json:"damage,omitempty"`
	Done         []string      `json:"done,omitempty"` // what a command that changes something has done
}

type arenaInfo struct {
	Name            string     `json:"name"`
	Path            string     `json:"path"`
	Size            int64      `json:"size"`
	Used            uint64     `json:"used"` // bytes of the heap that have memory
	Created         *time.Time `json:"created"`
	Participants    int        `json:"participants"`
	MaxParticipants int        `json:"max_participants"`
	Objects         uint64     `json:"objects"`
	Nodes           uint64     `json:"nodes"`
	Deaths          uint32     `json:"reaps"`
	Counted         bool       `json:"counted"`           // objects count what is done with them
	Health          string     `json:"health"`            // "ok", or what is wrong
	Removed         string     `json:"removed,omitempty"` // the path that the file had, if that was removed
}

type participant struct {
	Name         string     `json:"name"` // slot.generation
	Slot         int        `json:"slot"`
	Generation   uint32     `json:"generation"`
	Label        string     `json:"label"`
	PID          int        `json:"pid"` // in its own pid namespace
	PIDNamespace uint64     `json:"pid_namespace"`
	HostPID      int        `json:"host_pid"` // as seen from here; 0 if it cannot be found
	Life         string     `json:"life"`     // alive, stopped, traced, dead, unknown
	State        string     `json:"state"`    // of its slot: joining, live, leaving, dead
	Process      string     `json:"process"`  // its state as the kernel has it, if it was found
	UID          int        `json:"uid"`
	Joined       *time.Time `json:"joined"`
	Died         *time.Time `json:"died"`
	Notice       string     `json:"notice"`
	Fenced       bool       `json:"fenced"`
	Holds        int        `json:"holds"`
	Waits        int        `json:"waits"`
}

type deathRecord struct {
	Name  string     `json:"name"`
	Label string     `json:"label"`
	PID   int        `json:"pid"`
	Time  *time.Time `json:"time"`
	Left  bool       `json:"left"` // by closing; false: it died
}

type object struct {
	Name     string     `json:"name"` // or its offset, if it has none
	Offset   uint64     `json:"offset"`
	Kind     string     `json:"kind"` // four letters
	Type     string     `json:"type"`
	Version  uint16     `json:"version"`
	Size     uint64     `json:"size"`
	Created  *time.Time `json:"created"`
	OpenBy   []string   `json:"open_by"`
	State    string     `json:"state"`
	Policy   string     `json:"policy,omitempty"`
	Spin     string     `json:"spin,omitempty"`
	Error    string     `json:"error,omitempty"`
	Died     string     `json:"died,omitempty"` // whose death that is
	Key      *uint64    `json:"key,omitempty"`  // the key of a MultiLock that Error is about
	Words    []word     `json:"words,omitempty"`
	Counters *counters  `json:"counters,omitempty"`

	holds []int // in the snapshot
	waits []int
}

type word struct {
	Name string `json:"name"`
	Bits string `json:"bits"` // hexadecimal
	Text string `json:"text"`
}

type counters struct {
	Acquired  uint64 `json:"acquired"`
	Contended uint64 `json:"contended"`
	SpinsPaid uint64 `json:"spins_paid"`
	Slept     uint64 `json:"slept"`
	Woken     uint64 `json:"woken"`
	Recovered uint64 `json:"recovered"`
}

type hold struct {
	Object string  `json:"object"`
	Owner  string  `json:"owner"`
	Mode   string  `json:"mode"`
	Count  uint64  `json:"count,omitempty"`
	Key    *uint64 `json:"key,omitempty"`
	AgeNs  *int64  `json:"age_ns"`
	Note   string  `json:"note,omitempty"`

	object int // in the snapshot
}

type wait struct {
	Object     string   `json:"object"`
	Owner      string   `json:"owner"`
	For        string   `json:"for"`
	Want       *uint64  `json:"want,omitempty"`
	Order      uint64   `json:"order,omitempty"`
	How        string   `json:"how"`
	Goroutines uint64   `json:"goroutines,omitempty"`
	AgeNs      *int64   `json:"age_ns"`
	On         []string `json:"on,omitempty"` // participants
	Any        bool     `json:"any,omitempty"`

	object int
	on     []int // holds of the snapshot
	since  int64 // CLOCK_MONOTONIC, or 0
}

// edge says that one participant waits for another.
type edge struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Object string `json:"object"`
	For    string `json:"for"`
}

// Kinds of findings.
const (
	findDeadlock       = "deadlock"
	findStoppedHolder  = "stopped-holder"
	findDeadHolder     = "dead-holder"
	findOwnerDead      = "owner-dead"
	findNotRecoverable = "not-recoverable"
	findCorrupt        = "corrupt"
	findLongWait       = "waiting-for-living"
)

// finding is a fact that the user should know.
type finding struct {
	Kind         string   `json:"kind"`
	Trouble      bool     `json:"trouble"` // it will not go away by itself
	Text         string   `json:"text"`
	Advice       string   `json:"advice,omitempty"`
	Objects      []string `json:"objects,omitempty"`
	Participants []string `json:"participants,omitempty"`

	proof []proof // of a deadlock, one for each of its edges
}

func writeJSON(w io.Writer, d *document) error {
	d.Schema = schema
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(d)
}
