package arena

import (
	"time"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/diagnose"
)

// Finding is one reason why processes do not make progress: a deadlock; a holder that is stopped or
// dead, or that does not unlock; a lock that no process can take; or work that does not arrive.
type Finding struct {
	// Kind names the sort of reason in one word, such as "deadlock"; docs/shmctl.md lists them.
	Kind string
	// Text says what was found, with the participants and objects in it, in one line.
	Text string
	// Advice says what may be done, and Command is a command for a shell that does it. Either
	// may be empty.
	Advice, Command string
	// Force is the command to use if Command asks a process to end and the process stays because it
	// handles SIGTERM. It is empty if Command ends no process.
	Force        string
	Objects      []string        // names, or offsets of objects without a name
	Participants []ParticipantID // the participants that cause it, as far as known
}

// Diagnose examines the arena twice, a moment apart, and returns the findings that both
// examinations have, the worst first. The command shmctl waits prints the same findings. A wait in
// which every process is alive becomes a finding when it has lasted for the time older. If older is
// 0, that time is 10 s for a lock, and one minute for permits, parties and room in a queue.
//
// The program must import the packages of the objects, such as prims. The error is that of Refresh.
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
