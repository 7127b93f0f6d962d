package arena

import (
	"time"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/diagnose"
)

// Finding is one cause for which processes do not go on: a deadlock, a holder that is
// stopped, dead or does not unlock, a lock that no process can take, work that does not come.
type Finding struct {
	// Kind is one word for the sort of cause, such as "deadlock"; docs/shmctl.md lists them.
	Kind string
	// Text says what was found, with the participants and objects in it, in one line.
	Text string
	// Advice says what may be done, and Command is a command for a shell that does it. Either
	// may be empty.
	Advice, Command string
	// Force is the command to use if Command asks a process to end and the process does not, since
	// it handles SIGTERM. It is empty if Command ends no process.
	Force        string
	Objects      []string        // names, or offsets of objects without a name
	Participants []ParticipantID // the participants that cause it, as far as known
}

// Diagnose looks twice, a moment apart, and returns the findings of both looks, the worst
// first. It is what the command shmctl waits prints. A wait in which every process is alive
// is a finding if it has lasted for older; if older is 0, from 10 s on for a lock, and from
// one minute on for permits, parties and room in a queue.
//
// The program must import the packages of the objects, as prims. The error is that of
// Refresh.
func (i *Inspector) Diagnose(older time.Duration) ([]Finding, error) {
	look := func() (*diagnose.Snapshot, error) {
		if err := i.Refresh(); err != nil {
			return nil, err
		}
		return diagnose.Look(i.kernel(), diagnose.Options{Older: older}), nil
	}
	first, err := look()
	if err != nil {
		return nil, err
	}
	found, _, err := diagnose.Confirm(first, look)
	if err != nil {
		return nil, err
	}
	var all []Finding
	for _, f := range found {
		if !f.Trouble {
			continue
		}
		g := Finding{Kind: f.Kind, Text: f.Text, Advice: f.Advice, Command: f.Command, Force: f.Force, Objects: f.Objects}
		for _, name := range f.Participants {
			if id, err := arenakernel.ParseParticipantID(name); err == nil {
				g.Participants = append(g.Participants, id)
			}
		}
		all = append(all, g)
	}
	return all, nil
}
