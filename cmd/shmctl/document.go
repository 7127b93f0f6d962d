//go:build linux

package main

import (
	"encoding/json"
	"io"
	"time"

	"github.com/shmsync/shmsync/internal/diagnose"
)

// schema is the version of the field names of the documents below. Later documents of the same
// version may have additional fields, but have all fields of earlier ones.
const schema = "shmctl/1"

// document is what a command prints with --json. Each command sets only some of the fields. Times have the form of RFC
// 3339, ages are nanoseconds, and unknown values are null.
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
	Usage        []usage       `json:"usage,omitempty"`
	Value        *value        `json:"value,omitempty"`
	Changes      []change      `json:"changes,omitempty"`
	Done         []string      `json:"done,omitempty"`   // what a command that changes something has done
	Failed       []string      `json:"failed,omitempty"` // what such a command could not do, and why
}

// These parts of a document are types of package diagnose, under shorter names.
type (
	arenaInfo   = diagnose.Arena
	participant = diagnose.Participant
	deathRecord = diagnose.DeathRecord
	object      = diagnose.Object
	hold        = diagnose.Hold
	wait        = diagnose.Wait
	edge        = diagnose.Edge
	finding     = diagnose.Finding
	snapshot    = diagnose.Snapshot
)

// usage is the memory that the objects of a type take.
type usage struct {
	Type    string `json:"type"`
	Objects int    `json:"objects"`
	Bytes   uint64 `json:"bytes"`   // sizes of the blocks in the heap
	Largest string `json:"largest"` // the name of the largest object
	Most    uint64 `json:"most"`    // the bytes of the largest object
}

func writeJSON(w io.Writer, d *document) error {
	d.Schema = schema
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(d)
}
