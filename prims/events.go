package prims

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// tellDied tells that the death of n ended its hold of o: o is owner-dead or, if free is set, its
// policy has taken the hold back. key is the key of a MultiLock, or nil. The caller has made the
// change, so one process tells it, once.
func tellDied(a *arenakernel.Arena, o arenakernel.Object, key *uint64, n arenakernel.ParticipantID, free bool) {
	kind := arenakernel.EventOwnerDead
	if free {
		kind = arenakernel.EventTakenBack
	}
	a.Happened(kind, o, key, n, nil)
}

// failed makes an error of an operation on o. It tells damage.
func failed(a *arenakernel.Arena, o arenakernel.Object, op string, err error, who *shmsync.Identity, detail string) error {
	e := &shmsync.Error{Op: op, Object: objectName(o), Err: err, Who: who, Detail: detail}
	if err == shmsync.ErrCorrupt {
		a.Happened(arenakernel.EventCorrupt, o, nil, 0, e)
	}
	return e
}
