//go:build linux

package prims

import "github.com/shmsync/shmsync/arena"

// The words of the model of a Mutex. Each is a byte: an owner word is packed, a
// sequence is counted from the value that it has just now.
const (
	wOwner = iota
	wWake
	wStarving
	wHandoff
	wDead // the processes whose slots are marked dead, a bit each
)

// The registers of a thread.
const (
	rOwner = iota // the owner word that it has seen
	rWake         // the wake word to sleep on
	rHand         // the hand-off word to sleep on
	rFlags        // f...
	rMode         // the kind of hold that it takes
	rBack         // where it goes on after a wake
	rDead         // the process that it deals with the death of
)

// The flags of a thread.
const (
	fSlept       = 1 << iota // it was, or was about to be, asleep in this call
	fAsked                   // it has asked for a hand-off
	fClosed                  // the queue that the poller looks at has been closed
	fInside                  // it has the lock
	fRecord                  // it has an announce record
	fGaveBack                // it has given a reservation back
	fAll                     // the wake that it is at is for all
	fPollerFirst             // the wake that it is at goes to pollers first
)

// The steps of a thread. Each is one access of shared memory in the code, with the
// private work up to the next access.
const (
	sIdle uint8 = iota
	sTry
	sTook
	sUnask
	sInside
	sRelease
	sLookWake
	sReserve
	sTakeAsk
	sRevoke
	sBumpHand
	sWakeHand
	sTouch
	sAsk
	sHand
	sAnnounce
	sLook
	sFence
	sLookAgain
	sRecord
	sSleep
	sWoken
	sQuit
	sLeave
	sGiveBack
	sLeaveAnnounce
	sLeaveLook
	sLeaveFence
	sWakeNext
	sWakeOne
	sFenceDead
	sMark
	sMarkOwnerDead
	sRecoverEnd
	sWakeLost
	sWakeLostOne
	sReaperFence
	sReaperMark
	sRepairStarving
	sRepairOwner
	sSurvey
	sSurveyWord
	sUnreserve
	sRingPollers
	sReaped
	sEnlist
	sCompare
	sUnlist
	sParked
	sDelist
	sReady
	sPush
	sRing
	sWakeKernel
	sAskAfter
	sClosed
	sPollerTake
	sPollerNode
	sPollerFind
	sPollerDeliver
	sPollerRewait
	sPollerWake
	sPollerDeath
	sPollerSleep
)

// nameOf is the participant's name in the model: a process is a slot, and no
// slot is used twice.
func nameOf(process int) arena.ParticipantID { return arena.ParticipantID(process + 1) }

func pack(w ownerWord) uint8   { return uint8(w.kind())<<5 | uint8(w.participant()) }
func unpack(b uint8) ownerWord { return makeOwner(ownerKind(b>>5), arena.ParticipantID(b&31)) }

func processOf(w ownerWord) int { return int(w.participant()) - 1 }
