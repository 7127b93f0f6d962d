package diagnose

import (
	"fmt"
	"slices"
)

// Unlocked returns the participants whose processes exist, but have no byte lock on the file that was read. A process
// that joins by the same path would take them for dead, and would take their locks away from them.
func (s *Snapshot) Unlocked() []string { return s.unlocked }

// unlockedFindings adds a finding for the participants without a byte lock. It removes the other findings about these
// participants, except those of the kind Corrupt. The file may be a copy, which shows old holds and waits.
func (s *Snapshot) unlockedFindings(all []Finding) []Finding {
	if len(s.unlocked) == 0 {
		return all
	}
	all = slices.DeleteFunc(all, func(f Finding) bool {
		return f.Kind != Corrupt && slices.ContainsFunc(f.Participants, func(name string) bool { return slices.Contains(s.unlocked, name) })
	})
	who, are := s.Title(s.unlocked[0]), "exists, but has"
	if n := len(s.unlocked) - 1; n > 0 {
		who, are = fmt.Sprintf("%s and %d more", who, n), "exist, but have"
	}
	return append(all, Finding{Kind: Unlocked, Trouble: true, Participants: slices.Clone(s.unlocked),
		Text: fmt.Sprintf("%s %s no byte lock on this file: the file is a copy, or is seen through another mount, as below an overlay, "+
			"or the program has closed the descriptors of the arena", who, are),
		Advice:  "use the path by which the program opened the arena; a process that joins by this path takes living ones for dead",
		Command: "shmctl ls --all"})
}
