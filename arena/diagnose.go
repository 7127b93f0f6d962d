package arena

import (
	"time"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/diagnose"
)

// Finding is one reason why processes do not make progress. Examples are a deadlock, a holder that is
// stopped or dead or does not unlock, a lock that no process can take, and work that does not arrive.
type Finding struct {
	// Kind names the sort of reason in one word, such as "deadlock"; docs/shmctl.md lists them.
	Kind string
	// Text says what was found, with the participants and objects in it, in one line.
	Text string
	// Advice says what may be done. Command is a shell command that does what Advice says. Each may
	// be empty.
	Advice, Command string
	// If Command asks a process to end by SIGTERM, the process may handle the signal and not end.
	// Force is the command for this case. Force is empty if Command ends no process.
	Force        string
	Objects      []string        // names, or offsets for objects without a name
	Participants []ParticipantID // the participants that cause the problem, as far as they are known
}

// Diagnose examines the arena twice, a moment apart. It returns the findings that both examinations have, the worst
// first. While a living participant may be about to reap a dead one, Diagnose repeats the examination, for up to a
// second. The command "shmctl waits" prints the same findings. If no process that is involved in a wait is dead or
// stopped, the wait is a finding only if it has lasted for a minimum time. The parameter older sets this time. If older
// is 0, the time is 10 s for a lock, and one minute for permits, parties and room in a queue.
//
// The program must import the packages that define the objects, such as prims. Diagnose returns the errors of Refresh.
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
