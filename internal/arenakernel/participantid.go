package arenakernel

import "fmt"

// ParticipantID identifies a participant in shared words. It consists of a slot and of the generation
// of the slot. It fits into 29 bits, so a 32-bit owner word has three more bits for other uses. A
// generation is used again only when no word contains it any more; see [window].
//
//	bits 0..10   slot        1..2047; 0 in a ParticipantID that stands for no participant
//	bits 11..28  generation  1..262143; 0 is never used by a participant
//
// A ParticipantID is not current if its slot is free or dead, or if another participant has taken the
// slot. A word with such a ParticipantID names a dead participant.
type ParticipantID uint32

const (
	slotBits          = 11
	generationBits    = 18
	participantIDBits = slotBits + generationBits

	// ParticipantIDMask covers the bits of a ParticipantID in an owner word.
	ParticipantIDMask = 1<<participantIDBits - 1

	maxGeneration = 1<<generationBits - 1
)

func makeParticipantID(slot int, generation uint32) ParticipantID {
	return ParticipantID(uint32(slot) | generation<<slotBits)
}

// Slot returns the index of the participant's slot, or 0.
func (n ParticipantID) Slot() int { return int(n & MaxSlots) }

// Generation returns the number that distinguishes the participants of one slot. Each participant has a
// greater generation than its predecessor in the slot, until the slot begins another [window].
func (n ParticipantID) Generation() uint32 { return uint32(n>>slotBits) & maxGeneration }

// Covers reports whether o has the same slot as n, and the same or an earlier generation. If so, the
// reaper of n also cleans up after o, because the reaper of o may have died before it had finished.
func (n ParticipantID) Covers(o ParticipantID) bool {
	return o != 0 && o.Slot() == n.Slot() && o.Generation() <= n.Generation()
}

// ParseParticipantID parses the text that String returns.
func ParseParticipantID(text string) (ParticipantID, error) {
	var slot int
	var generation uint32
	_, err := fmt.Sscanf(text, "%d.%d", &slot, &generation)
	inRange := slot >= 1 && slot <= MaxSlots && generation >= 1 && generation <= maxGeneration
	// Sscanf also accepts spaces, signs, and anything behind the last number, and String returns none of these.
	if n := makeParticipantID(slot, generation); err == nil && inRange && n.String() == text {
		return n, nil
	}
	return 0, fmt.Errorf("%q is no participant such as 3.1", text)
}

// String renders the ID as slot.generation.
func (n ParticipantID) String() string { return fmt.Sprintf("%d.%d", n.Slot(), n.Generation()) }
