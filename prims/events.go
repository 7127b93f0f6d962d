package prims

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// tellDied reports to the functions of Options.OnEvent that participant n died while it held o. If the parameter free
// is true, the policy has freed the lock; otherwise the lock is owner-dead. key is the key of a MultiLock, or nil.
// Only the process that has marked this death in the words of o calls tellDied. So the death is reported only once.
func tellDied(a *arenakernel.Arena, o arenakernel.Object, key *uint64, n arenakernel.ParticipantID, free bool) {
	kind := arenakernel.EventOwnerDead
	if free {
		kind = arenakernel.EventTakenBack
	}
	a.Happened(kind, o, key, n, nil)
}

// failed makes the error of an operation on o. If err is ErrCorrupt, failed also reports the error to the
// functions of Options.OnEvent.
func failed(a *arenakernel.Arena, o arenakernel.Object, op string, err error, who *shmsync.Identity, detail string) error {
	e := &shmsync.Error{Op: op, Object: objectName(o), Err: err, Who: who, Detail: detail}
	if err == shmsync.ErrCorrupt {
		a.Happened(arenakernel.EventCorrupt, o, nil, 0, e)
	}
	return e
}
