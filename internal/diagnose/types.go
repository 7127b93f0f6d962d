// Package diagnose takes snapshots of arenas and says why processes do not make progress. The command shmctl prints
// its findings, and [github.com/shmsync/shmsync/arena.Inspector] returns them.
//
// A snapshot is read word by word while processes write, so it can be inconsistent. Therefore a finding counts only
// if a second snapshot confirms it; see [Confirm].
package diagnose

import "time"

// Arena describes an arena. Its fields, and those of the other types here, are members of the JSON
// document of shmctl.
type Arena struct {
	Name            string     `json:"name"`
	Path            string     `json:"path"`
	Size            int64      `json:"size"`
	Used            uint64     `json:"used"` // bytes of the heap that have memory behind them
	Created         *time.Time `json:"created"`
	Participants    int        `json:"participants"`
	MaxParticipants int        `json:"max_participants"`
	Objects         uint64     `json:"objects"`
	Nodes           uint64     `json:"nodes"`
	Deaths          uint32     `json:"reaps"`
	Counted         bool       `json:"counted"`           // objects count their operations
	Epoch           uint64     `json:"epoch"`             // number of the last epoch that began; 0 for none
	Clean           bool       `json:"clean"`             // no death was recorded since the epoch began
	Health          string     `json:"health"`            // "ok", or what is wrong
	Layout          uint32     `json:"layout"`            // version of its layout; 0 if it is not known
	Removed         string     `json:"removed,omitempty"` // the path that the file had before it was removed
}

// Participant is a participant of an arena.
type Participant struct {
	Name         string     `json:"name"` // slot.generation
	Slot         int        `json:"slot"`
	Generation   uint32     `json:"generation"`
	Label        string     `json:"label"`
	PID          int        `json:"pid"` // in its own pid namespace
	PIDNamespace uint64     `json:"pid_namespace"`
	HostPID      int        `json:"host_pid"` // in the pid namespace of this process; 0 if the process was not found
	Life         string     `json:"life"`     // alive, stopped, traced, frozen, dead, unknown
	State        string     `json:"state"`    // state of its slot: joining, pending, first, live, leaving, dead
	Process      string     `json:"process"`  // the kernel's state of the process, if it was found
	UID          int        `json:"uid"`
	Joined       *time.Time `json:"joined"`
	Died         *time.Time `json:"died"`
	Notice       string     `json:"notice"`
	Fenced       bool       `json:"fenced"`
	Holds        int        `json:"holds"`
	Waits        int        `json:"waits"`
}

// DeathRecord describes a participant that died or left.
type DeathRecord struct {
	Name  string     `json:"name"`
	Label string     `json:"label"`
	PID   int        `json:"pid"`
	Time  *time.Time `json:"time"`
	Left  bool       `json:"left"` // the participant left by Close, and did not die
}

// Object is an object of an arena.
type Object struct {
	Name     string     `json:"name"` // its name, or its offset if it has none
	Named    bool       `json:"-"`    // it has a name
	Offset   uint64     `json:"offset"`
	Kind     string     `json:"kind"` // four letters
	Type     string     `json:"type"`
	Version  uint16     `json:"version"`
	Size     uint64     `json:"size"`
	Memory   uint64     `json:"memory"` // bytes of the heap for its header, body and slot records, each rounded up to its block
	Created  *time.Time `json:"created"`
	OpenBy   []string   `json:"open_by"`
	State    string     `json:"state"`
	Policy   string     `json:"policy,omitempty"`
	Spin     string     `json:"spin,omitempty"`
	Error    string     `json:"error,omitempty"`
	Died     string     `json:"died,omitempty"` // the participant whose death Error reports
	Key      *uint64    `json:"key,omitempty"`  // the key of a MultiLock that Error is about
	Words    []Word     `json:"words,omitempty"`
	Counters *Counters  `json:"counters,omitempty"`

	Holds []int `json:"-"` // indices in the snapshot
	Waits []int `json:"-"`
}

// Word is a word of an object, decoded.
type Word struct {
	Name string `json:"name"`
	Bits string `json:"bits"` // hexadecimal
	Text string `json:"text"`
}

// Counters are the counters of an object.
type Counters struct {
	Acquired  uint64 `json:"acquired"`
	Contended uint64 `json:"contended"`
	SpinsPaid uint64 `json:"spins_paid"`
	Slept     uint64 `json:"slept"`
	Woken     uint64 `json:"woken"`
	Recovered uint64 `json:"recovered"`
}

// Hold is a hold of a participant on an object.
type Hold struct {
	Object string  `json:"object"`
	Owner  string  `json:"owner"`
	Mode   string  `json:"mode"`
	Count  uint64  `json:"count,omitempty"`
	Key    *uint64 `json:"key,omitempty"`
	AgeNs  *int64  `json:"age_ns"`
	Note   string  `json:"note,omitempty"`

	AtLeast bool `json:"age_at_least,omitempty"` // the age is a lower bound

	ObjectIndex int `json:"-"` // in the snapshot
}

// Wait is a wait of one or more goroutines of a participant.
type Wait struct {
	Object     string   `json:"object"`
	Owner      string   `json:"owner"`
	For        string   `json:"for"`
	Want       *uint64  `json:"want,omitempty"`
	Order      uint64   `json:"order,omitempty"`
	How        string   `json:"how"`
	Goroutines uint64   `json:"goroutines,omitempty"`
	AgeNs      *int64   `json:"age_ns"`
	On         []string `json:"on,omitempty"` // names of participants
	Any        bool     `json:"any,omitempty"`

	ObjectIndex int   `json:"-"` // in the snapshot
	OnHolds     []int `json:"-"` // indices of holds

	since int64 // CLOCK_MONOTONIC, or 0
}

// Edge says that participant From waits for participant To.
type Edge struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Object string `json:"object"`
	For    string `json:"for"`
}

// Kinds of findings.
const (
	Deadlock       = "deadlock"
	StoppedHolder  = "stopped-holder"
	DeadHolder     = "dead-holder"
	OwnerDead      = "owner-dead"
	NotRecoverable = "not-recoverable"
	Corrupt        = "corrupt"
	LeakedHold     = "leaked-hold"
	SelfWait       = "self-wait"
	LongHold       = "long-hold"
	Exhausted      = "exhausted"
	MissingParties = "missing-parties"
	FullQueue      = "full-queue"
	Unlocked       = "unlocked"
)

// Kinds lists the kinds of findings, the worst first.
var Kinds = []string{
	Corrupt, Unlocked, Deadlock, DeadHolder, StoppedHolder, OwnerDead, NotRecoverable,
	SelfWait, LeakedHold, FullQueue, Exhausted, MissingParties, LongHold,
}

// Finding is a fact that the user should know.
type Finding struct {
	Kind         string   `json:"kind"`
	Trouble      bool     `json:"trouble"` // the problem will not go away by itself
	Text         string   `json:"text"`
	Advice       string   `json:"advice,omitempty"`
	Command      string   `json:"command,omitempty"` // carries out the advice; ready to be pasted into a shell
	Force        string   `json:"force,omitempty"`   // the command to use if Command does not end the process
	Objects      []string `json:"objects,omitempty"`
	Participants []string `json:"participants,omitempty"`

	proof []proof // for a deadlock: one proof for each edge of the cycle
}
