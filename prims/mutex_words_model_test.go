//go:build linux

package prims

import "github.com/shmsync/shmsync/arena"

// The words of the model of a Mutex. Each word is a byte: pack shortens an owner word to a byte, and canon keeps the
// sequences in the other words small.
const (
	wOwner = iota
	wWake
	wStarving
	wHandoff
	wDead // the processes whose slots are marked dead, one bit for each process
)

// The registers of a thread.
const (
	rOwner = iota // the owner word that the thread has read
	rWake         // the value of the wake word that it has read before its sleep
	rHand         // the value of the handoff word that it has read before its sleep
	rFlags        // the flags, such as fSlept
	rMode         // the kind of hold that it takes
	rBack         // the step at which it goes on after a wake
	rDead         // the dead process with which it deals
)

// The flags of a thread.
const (
	fSlept       = 1 << iota // the thread has slept in this call, or was about to sleep
	fAsked                   // it has asked for a handoff
	fClosed                  // the poller has a wake for a queue that has been closed
	fInside                  // it has the lock
	fRecord                  // it has an announce record
	fGaveBack                // it has given a reservation back
	fAll                     // its present wake is for all waiters
	fPollerFirst             // its present wake goes to pollers first
)

// The steps of a thread. In each step the thread accesses shared memory once, as in the code, and
// then works on its own data up to the next access.
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

// nameOf returns the name of a participant in the model. Each process has its own slot, and no slot
// is used twice.
func nameOf(process int) arena.ParticipantID { return arena.ParticipantID(process + 1) }

func pack(w ownerWord) uint8   { return uint8(w.kind())<<5 | uint8(w.participant()) }
func unpack(b uint8) ownerWord { return makeOwner(ownerKind(b>>5), arena.ParticipantID(b&31)) }

func processOf(w ownerWord) int { return int(w.participant()) - 1 }
