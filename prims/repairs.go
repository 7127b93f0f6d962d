package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// alone converts the function repair to the form of [arenakernel.KindOps], for a kind that every process can repair
// alone. That is so if repair needs no slot record and no function of the program, or if it changes a word on which the
// waiters sleep when it has no slot record.
func alone(repair func(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID)) func(*arenakernel.Arena, arenakernel.Object, arenakernel.ParticipantID) bool {
	return func(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) bool {
		repair(a, o, dead)
		return true
	}
}
